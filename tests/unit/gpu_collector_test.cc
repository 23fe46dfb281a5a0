#include "server/metrics/gpu_collector.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_nvml.h"
#include "tests/unit/log_lines.h"
#include "tests/unit/metrics_fixture.h"

namespace gemmd::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPower = "gemmd_gpu_power_watts";
constexpr const char* kAge = "gemmd_gpu_sample_age_seconds";
constexpr const char* kReasonsQuery = "nvmlDeviceGetCurrentClocksEventReasons";  // the last of each

auto HasFamily(const std::string& name) {
  return Contains(Field(&prometheus::MetricFamily::name, name));
}

class GpuCollectorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(nvml_, nullptr) << GEMMD_FAKE_NVML;
    nvml_->Reset();
    options_.library = GEMMD_FAKE_NVML;
    options_.interval = std::chrono::milliseconds(1);
    options_.patience = std::chrono::seconds(30);
  }

  void Start(std::vector<GpuDevice> devices = {{0, kFirstGpu}}) {
    collector_ = std::make_unique<GpuCollector>(std::move(devices), options_, log_.logger());
  }
  Families Scrape() const { return collector_->Collect(); }
  // What the thread brings about.
  template <typename Condition>
  void Until(Condition condition) const {
    const auto limit = SteadyClock::now() + std::chrono::seconds(30);
    while (!condition(Scrape())) {
      ASSERT_LT(SteadyClock::now(), limit);
      std::this_thread::yield();
    }
  }
  // Every device is read, and the next reading of one hangs.
  void HangOnceRead() {
    nvml_->WaitForCalls(kReasonsQuery, 2);
    nvml_->Hold("nvmlDeviceGetPowerUsage");
    nvml_->WaitForHeld();
  }

  LogLines log_;
  FakeNvml* const nvml_ = FakeNvml::Get();
  GpuOptions options_;
  std::unique_ptr<GpuCollector> collector_;
};

TEST_F(GpuCollectorTest, ExportsEachDeviceByItsOrdinal) {
  Start({{3, kSecondGpu}, {5, kFirstGpu}});
  nvml_->WaitForCalls(kReasonsQuery, 3);  // the second reading has begun
  const Families families = Scrape();
  EXPECT_EQ(ValueOf(families, kPower, {{"device", "3"}}), 71.5);
  EXPECT_EQ(ValueOf(families, kPower, {{"device", "5"}}), 412.345);
  EXPECT_LT(ValueOf(families, kAge, {{"device", "3"}}), 30);
  EXPECT_EQ(families.size(), std::size(kGpuGauges) + 2);
}

TEST_F(GpuCollectorTest, HasOneGaugeForEachThrottleReasonAndOneForWhatItDoesNotKnow) {
  Start();
  nvml_->WaitForCalls(kReasonsQuery, 2);
  const Families families = Scrape();  // of 0x404
  double set = 0;
  for (const char* reason : {"gpu_idle", "applications_clocks", "sw_power_cap", "hw_slowdown",
                             "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown",
                             "hw_power_brake_slowdown", "display_clocks", "other"}) {
    set += ValueOf(families, kThrottleName, {{"device", "0"}, {"reason", reason}});
  }
  EXPECT_EQ(set, 2);
  EXPECT_EQ(ValueOf(families, kThrottleName, {{"device", "0"}, {"reason", "sw_power_cap"}}), 1);
  EXPECT_EQ(ValueOf(families, kThrottleName, {{"device", "0"}, {"reason", "other"}}), 1);
}

TEST_F(GpuCollectorTest, FollowsTheDevice) {
  Start();
  nvml_->Answer("nvmlDeviceGetPowerUsage", 999);
  Until([](const Families& families) {
    return families.size() == std::size(kGpuGauges) + 1;  // one has no series now
  });
  EXPECT_THAT(Scrape(), Not(HasFamily(kPower)));
  nvml_->Answer("nvmlDeviceGetPowerUsage", 0);
  Until([](const Families& families) { return families.size() == std::size(kGpuGauges) + 2; });
}

TEST_F(GpuCollectorTest, AScrapeHasTheLastReadingWhileTheDriverHangs) {
  Start();
  HangOnceRead();
  const double age = ValueOf(Scrape(), kAge, {{"device", "0"}});
  EXPECT_EQ(ValueOf(Scrape(), kPower, {{"device", "0"}}), 412.345);
  EXPECT_GT(ValueOf(Scrape(), kAge, {{"device", "0"}}), age);
  nvml_->Release();
}

TEST_F(GpuCollectorTest, AReadingPastItsAgeIsLeftOutAndItsAgeStays) {
  options_.max_age = std::chrono::milliseconds(-1);
  Start();
  HangOnceRead();
  const Families families = Scrape();
  EXPECT_THAT(families, ElementsAre(Field(&prometheus::MetricFamily::name, kAge)));
  EXPECT_GT(ValueOf(families, kAge, {{"device", "0"}}), 0);
  nvml_->Release();
}

TEST_F(GpuCollectorTest, AScrapeOfADriverThatHungFromTheStartHasTheAgeAlone) {
  for (const char* function : {"nvmlDeviceGetHandleByUUID", "nvmlDeviceGetTemperature"}) {
    SCOPED_TRACE(function);
    nvml_->Hold(function);
    Start();
    nvml_->WaitForHeld();
    EXPECT_THAT(Scrape(), ElementsAre(Field(&prometheus::MetricFamily::name, kAge)));
    EXPECT_GT(ValueOf(Scrape(), kAge, {{"device", "0"}}), 0);
    nvml_->Release();
    collector_.reset();
  }
}

TEST_F(GpuCollectorTest, ADriverThatHangsIsLeftBehindAndTheLibraryGivenBackWhenItReturns) {
  options_.patience = std::chrono::milliseconds(1);
  Start();
  HangOnceRead();
  collector_.reset();
  EXPECT_EQ(nvml_->users(), 1);
  nvml_->Release();
  nvml_->WaitForUsers(0);
}

TEST_F(GpuCollectorTest, TheThreadAndTheLibraryEndWithIt) {
  options_.interval = std::chrono::hours(1);
  Start();
  nvml_->WaitForCalls(kReasonsQuery, 1);
  const auto start = SteadyClock::now();
  collector_.reset();
  EXPECT_EQ(nvml_->users(), 0);
  EXPECT_LT(SteadyClock::now() - start, options_.patience);
}

TEST_F(GpuCollectorTest, WithoutTheLibraryThereAreNoSeriesAndOneLine) {
  options_.library = "libno-such-nvml.so.1";
  Start({{0, kFirstGpu}, {1, kSecondGpu}});
  Until([](const Families& families) { return families.empty(); });
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("libno-such-nvml.so.1")));
}

TEST_F(GpuCollectorTest, ALostDeviceHasNoSeriesAndTheOthersStay) {
  Start({{0, kFirstGpu}, {1, kSecondGpu}});
  nvml_->Answer("nvmlDeviceGetTemperature", 15, kFirstGpu);
  Until([](const Families& families) {
    for (const auto& family : families) {
      if (family.name == kAge) return family.metric.size() == 1;
    }
    return false;
  });
  Until([](const Families& families) { return families.size() == std::size(kGpuGauges) + 2; });
  for (const auto& family : Scrape()) {
    for (const auto& metric : family.metric) EXPECT_EQ(LabelsOf(metric).at("device"), "1");
  }
}

}  // namespace
}  // namespace gemmd::testing
