#include "kernels/core/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/device_traits.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kClockHz = 1.98e9;
constexpr double kLatencyClocks = 700, kBytesPerClock = 60, kFlopsPerClock = 4000;

// Of a device that has these figures. With 1 of `lag`, a ring of S stages has S - 1 panels under
// way, as that of cp.async has. `noise` is the most that a sample may be off by.
RingSamples SamplesOfDevice(int stages, int lag, double noise = 0) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
  RingSamples samples{.step_bytes = 8192, .step_seconds = {}, .flops_per_second = 0};
  const double transfer = static_cast<double>(samples.step_bytes) / kBytesPerClock;
  for (int s = 1; s <= stages; ++s) {
    const double under_way = std::max(s - lag, 1);
    const double clocks = std::max(transfer, (kLatencyClocks + transfer) / under_way);
    samples.step_seconds.push_back(clocks / kClockHz * factor(random));
  }
  samples.flops_per_second = kFlopsPerClock * kClockHz;
  return samples;
}

TEST(FitRingTest, FindsLatencyAndBandwidthOfADevice) {
  for (const int lag : {0, 1}) {
    const StatusOr<RingCalibration> ring = FitRing("tma", SamplesOfDevice(16, lag), kClockHz);
    ASSERT_TRUE(ring.ok()) << ring.status().ToString();
    EXPECT_NEAR(ring->latency_clocks, kLatencyClocks, 1e-6);
    EXPECT_NEAR(ring->bytes_per_clock, kBytesPerClock, 1e-6);
    EXPECT_NEAR(ring->flops_per_clock, kFlopsPerClock, 1e-6);
  }
}

TEST(FitRingTest, NoiseOfASampleIsNoMoreThanThatInTheResult) {
  const StatusOr<RingCalibration> ring = FitRing("tma", SamplesOfDevice(16, 0, 0.03), kClockHz);
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  EXPECT_NEAR(ring->latency_clocks, kLatencyClocks, 0.05 * kLatencyClocks);
  EXPECT_NEAR(ring->bytes_per_clock, kBytesPerClock, 0.04 * kBytesPerClock);
}

TEST(FitRingTest, WhatCannotHaveBeenMeasuredIsRefusedByName) {
  const auto expect_refused = [](const RingSamples& samples, double clock_hz,
                                 const std::string& what) {
    const Status status = FitRing("tma", samples, clock_hz).status();
    EXPECT_EQ(status.code(), StatusCode::kInternal) << what;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("calibration: tma."), HasSubstr(what)));
  };
  const RingSamples good = SamplesOfDevice(16, 0);
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const double seconds : {0.0, -1e-7, nan, inf}) {
    RingSamples bad = good;
    bad.step_seconds[2] = seconds;
    expect_refused(bad, kClockHz, "with 3 stages is not above 0 and finite");
  }
  for (const double clock_hz : {0.0, -1.0, nan, inf}) {
    expect_refused(good, clock_hz, "clock_hz=");
  }
  for (const double flops : {0.0, -1.0, nan, inf, 1e30}) {
    RingSamples bad = good;
    bad.flops_per_second = flops;
    expect_refused(bad, kClockHz, "flops_per_clock=");
  }
  RingSamples bad = good;
  bad.step_seconds.resize(1);
  expect_refused(bad, kClockHz, "step_seconds has 1 stage counts, the least is 2");
  bad.step_seconds.clear();
  expect_refused(bad, kClockHz, "step_seconds has 0 stage counts");
  bad = good;
  bad.step_bytes = 0;
  expect_refused(bad, kClockHz, "step_bytes=0 is below 1");
  bad = good;
  bad.step_seconds.assign(16, 1e-7);
  expect_refused(bad, kClockHz, "latency_clocks=0 is not from 50 to 20000");
  for (double& seconds : bad.step_seconds) seconds = 1e-3;
  bad.step_seconds[0] += kLatencyClocks / kClockHz;
  expect_refused(bad, kClockHz, "bytes_per_clock=");
}

TEST(CheckCalibrationTest, FiguresThatNoDeviceHasAreRefusedByName) {
  EXPECT_TRUE(CheckCalibration(kH200Calibration, 90).ok());
  EXPECT_TRUE(CheckCalibration({.cp_async = kH200Calibration.cp_async, .tma = {}}, 80).ok());
  const auto expect_refused = [](const Calibration& calibration, int compute_capability,
                                 const std::string& what) {
    const Status status = CheckCalibration(calibration, compute_capability);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << what;
    EXPECT_THAT(status.message(), HasSubstr(what));
  };
  expect_refused(kH200Calibration, 80, "tma is there, and the device's compute_capability=80");
  expect_refused({.cp_async = kH200Calibration.cp_async, .tma = {}}, 90, "tma is missing");
  expect_refused({}, 80, "cp_async.latency_clocks=0");
  for (double RingCalibration::*figure :
       {&RingCalibration::latency_clocks, &RingCalibration::bytes_per_clock,
        &RingCalibration::flops_per_clock}) {
    for (const double value : {0.0, -1.0, 1e9, std::nan("")}) {
      Calibration bad = kH200Calibration;
      bad.cp_async.*figure = value;
      expect_refused(bad, 90, "cp_async.");
      bad = kH200Calibration;
      (*bad.tma).*figure = value;
      expect_refused(bad, 90, "tma.");
    }
  }
}

}  // namespace
}  // namespace gemmd
