// Calibration on a device: figures that such a device can have, and the same ones again.
#include "kernels/cuda/calibration.h"

#include <cmath>
#include <stop_token>

#include "tests/device/device_fixture.h"

namespace gemmd {
namespace {

constexpr double kRepeats = 0.15;  // of a figure, between two runs

class CalibrationTest : public DeviceTest {
 protected:
  StatusOr<Calibration> Calibrate(const std::stop_token& stop = {}) const {
    ASSIGN_OR_RETURN(const CalibrationSamples samples,
                     MeasureCalibration(traits_, kCalibrationRounds, stop));
    return FitCalibration(samples, traits_);
  }

  static void ExpectPlausible(const RingCalibration& ring) {
    EXPECT_GT(ring.latency_clocks, 200);
    EXPECT_LT(ring.latency_clocks, 5000);
    EXPECT_GT(ring.bytes_per_clock, 10);
    EXPECT_LT(ring.bytes_per_clock, 256);
    EXPECT_GT(ring.flops_per_clock, 500);
    EXPECT_LT(ring.flops_per_clock, 5000);
  }
  static void ExpectSame(const RingCalibration& x, const RingCalibration& y) {
    EXPECT_NEAR(x.latency_clocks, y.latency_clocks, kRepeats * x.latency_clocks);
    EXPECT_NEAR(x.bytes_per_clock, y.bytes_per_clock, kRepeats * x.bytes_per_clock);
    EXPECT_NEAR(x.flops_per_clock, y.flops_per_clock, kRepeats * x.flops_per_clock);
  }
};

TEST_F(CalibrationTest, FiguresArePlausibleAndTwiceTheSame) {
  const StatusOr<Calibration> first = Calibrate(), second = Calibrate();
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  ExpectPlausible(first->cp_async);
  ExpectSame(first->cp_async, second->cp_async);
  ASSERT_EQ(first->tma.has_value(), traits_.compute_capability == 90);
  if (!first->tma) return;
  ExpectPlausible(*first->tma);
  ExpectSame(*first->tma, *second->tma);
}

// More stages never make a load-only ring much slower; of the longest the memory system tires.
TEST_F(CalibrationTest, StepsGetShorterWithMoreStages) {
  const StatusOr<CalibrationSamples> samples =
      MeasureCalibration(traits_, kCalibrationRounds, std::stop_token());
  ASSERT_TRUE(samples.ok()) << samples.status().ToString();
  const auto expect_falling = [](const RingSamples& ring) {
    for (size_t i = 1; i < ring.step_seconds.size(); ++i) {
      EXPECT_LT(ring.step_seconds[i], 1.3 * ring.step_seconds[i - 1]) << i + 1 << " stages";
    }
    EXPECT_LT(ring.step_seconds.back(), 0.7 * ring.step_seconds.front());
  };
  expect_falling(samples->cp_async);
  if (samples->tma) expect_falling(*samples->tma);
}

TEST_F(CalibrationTest, EndsWhenAskedTo) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(Calibrate(stop.get_token()).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace gemmd
