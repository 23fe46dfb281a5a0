// A tuning file of a server that has devices of several kinds.
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tuning_file_fixture.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DeviceTraits A100Traits() {
  DeviceTraits traits = H200Traits();
  traits.name = "NVIDIA A100";
  traits.compute_capability = 80;
  traits.sm_count = 108;
  return traits;
}

// The figures of a device, told apart by one.
Calibration Figures(const DeviceTraits& traits, double latency_clocks) {
  Calibration calibration = kH200Calibration;
  calibration.cp_async.latency_clocks = latency_clocks;
  if (traits.compute_capability < 90) calibration.tma.reset();
  return calibration;
}

class TuningFileDevicesTest : public TuningFileTest {
 protected:
  // What the servers before this one knew: both devices' calibration, and a problem of each.
  void SaveBoth() {
    TunedPlanner h200(H200Traits()), a100(A100Traits());
    ASSERT_TRUE(h200.Calibrate(Figures(H200Traits(), 200)).ok());
    ASSERT_TRUE(a100.Calibrate(Figures(A100Traits(), 100)).ok());
    const MeasuredPlan plan{{.row = RowByName("cp_async_64x64x64"), .stages = 2}, 1e-5};
    ASSERT_TRUE(h200.Learn({Problem(200, 512, 512), {plan}}));
    ASSERT_TRUE(a100.Learn({Problem(100, 512, 512), {plan}}));
    const Status status = File().Save({&h200, &a100});
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  static void ExpectHas(const TunedPlanner& planner, int64_t m, double latency_clocks) {
    EXPECT_EQ(planner.calibration(), Figures(planner.model().traits(), latency_clocks));
    ASSERT_EQ(planner.entries(), 1U);
    EXPECT_EQ(planner.Learnt().front().problem.m, m);
  }
};

TEST_F(TuningFileDevicesTest, EachGetsItsOwnBackWhateverTheirOrder) {
  SaveBoth();
  TunedPlanner h200(H200Traits()), a100(A100Traits());
  const StatusOr<LoadedTuning> loaded = File().Load({&a100, &h200});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->calibrated, 2);
  EXPECT_EQ(loaded->problems, 2);
  EXPECT_TRUE(loaded->device.ok());
  ExpectHas(h200, 200, 200);
  ExpectHas(a100, 100, 100);
}

TEST_F(TuningFileDevicesTest, OneThatIsGoneIsToldAndKeptBesideWhatTheOthersSave) {
  SaveBoth();
  TunedPlanner a100(A100Traits());
  TuningFile file = File();
  const StatusOr<LoadedTuning> loaded = file.Load({&a100});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  ExpectHas(a100, 100, 100);
  EXPECT_THAT(loaded->device.message(),
              AllOf(HasSubstr(path_), HasSubstr("device=NVIDIA H200, where this server has ")));
  ASSERT_TRUE(file.Save({&a100}).ok());
  TunedPlanner h200(H200Traits());
  ASSERT_TRUE(TuningFile(path_ + ".old", kBuild).Load({&h200}).ok());
  ExpectHas(h200, 200, 200);
}

TEST_F(TuningFileDevicesTest, WhatIsOfAnotherDriverIsRefusedForThatAndNotForItsName) {
  SaveOne();
  DeviceTraits newer = H200Traits();
  newer.driver_version = 13010;
  TunedPlanner a100(A100Traits()), h200(newer);
  EXPECT_THAT(File().Load({&a100, &h200}).status().message(),
              HasSubstr("driver_version=13000, where this server has 13010"));
}

TEST_F(TuningFileDevicesTest, OneThatIsNewKnowsNothingYet) {
  SaveOne();
  TunedPlanner h200(H200Traits()), a100(A100Traits());
  const StatusOr<LoadedTuning> loaded = File().Load({&h200, &a100});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_TRUE(loaded->device.ok());
  EXPECT_EQ(h200.entries(), 1U);
  EXPECT_EQ(a100.entries(), 0U);
}

TEST_F(TuningFileDevicesTest, ACalibrationThatCannotBeNamesItsDevice) {
  SaveBoth();
  Replace(R"("latency_clocks": 100)", R"("latency_clocks": 0)");
  TunedPlanner h200(H200Traits()), a100(A100Traits());
  const StatusOr<LoadedTuning> loaded = File().Load({&h200, &a100});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->calibrated, 1);
  EXPECT_EQ(loaded->problems, 2);
  EXPECT_THAT(loaded->calibration.message(),
              AllOf(HasSubstr("NVIDIA A100: "), HasSubstr("cp_async.latency_clocks=0")));
}

}  // namespace
}  // namespace gemmd
