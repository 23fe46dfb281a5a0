#include "server/metrics/gpu_reader.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_nvml.h"
#include "tests/unit/log_lines.h"

namespace gemmd::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kNotSupported = 3;
constexpr int kGpuIsLost = 15;
constexpr int kUnknown = 999;

// Each function of the library, and what is read by it.
const std::map<std::string, std::set<std::string>> kReadBy = {
    {"nvmlDeviceGetUtilizationRates",
     {"gemmd_gpu_sm_utilization_ratio", "gemmd_gpu_memory_utilization_ratio"}},
    {"nvmlDeviceGetMemoryInfo", {"gemmd_gpu_memory_used_bytes", "gemmd_gpu_memory_total_bytes"}},
    {"nvmlDeviceGetPowerUsage", {"gemmd_gpu_power_watts"}},
    {"nvmlDeviceGetEnforcedPowerLimit", {"gemmd_gpu_power_limit_watts"}},
    {"nvmlDeviceGetTemperature", {"gemmd_gpu_temperature_celsius"}},
    {"nvmlDeviceGetClockInfo", {"gemmd_gpu_sm_clock_hertz", "gemmd_gpu_memory_clock_hertz"}},
    {"nvmlDeviceGetCurrentClocksEventReasons", {"gemmd_gpu_throttle_reason"}},
};

// What was read, by name.
using Values = std::map<std::string, double>;
Values ValuesOf(const std::optional<GpuSample>& sample) {
  Values values;
  if (!sample) return values;
  for (size_t i = 0; i < std::size(kGpuGauges); ++i) {
    if (sample->values[i]) values[kGpuGauges[i].name] = *sample->values[i];
  }
  if (sample->clocks_event_reasons) {
    values[kThrottleName] = static_cast<double>(*sample->clocks_event_reasons);
  }
  return values;
}

std::set<std::string> NamesOf(const Values& values) {
  std::set<std::string> names;
  for (const auto& [name, value] : values) names.insert(name);
  return names;
}

class GpuReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(nvml_, nullptr) << GEMMD_FAKE_NVML;
    nvml_->Reset();
  }

  std::unique_ptr<GpuReader> Open(const std::vector<GpuDevice>& devices,
                                  const std::string& library = GEMMD_FAKE_NVML) {
    StatusOr<std::unique_ptr<GpuReader>> reader = GpuReader::Open(library, devices, log_.logger());
    EXPECT_TRUE(reader.ok()) << reader.status().ToString();
    return reader.ok() ? *std::move(reader) : nullptr;
  }
  std::string WhyNot(const std::string& library) {
    const auto reader = GpuReader::Open(library, {{0, kFirstGpu}}, log_.logger());
    EXPECT_EQ(reader.status().code(), StatusCode::kUnavailable) << reader.status().ToString();
    return reader.status().message();
  }

  LogLines log_;
  FakeNvml* const nvml_ = FakeNvml::Get();
};

TEST_F(GpuReaderTest, GivesEveryGaugeInItsBaseUnit) {
  const auto reader = Open({{0, kFirstGpu}});
  EXPECT_EQ(ValuesOf(reader->Read(0)), (Values{{"gemmd_gpu_sm_utilization_ratio", 0.57},
                                               {"gemmd_gpu_memory_utilization_ratio", 0.23},
                                               {"gemmd_gpu_memory_used_bytes", 12345},
                                               {"gemmd_gpu_memory_total_bytes", 150754820096},
                                               {"gemmd_gpu_power_watts", 412.345},
                                               {"gemmd_gpu_power_limit_watts", 700},
                                               {"gemmd_gpu_temperature_celsius", 61},
                                               {"gemmd_gpu_sm_clock_hertz", 1755e6},
                                               {"gemmd_gpu_memory_clock_hertz", 3201e6},
                                               {"gemmd_gpu_throttle_reason", 0x404}}));
  EXPECT_THAT(log_.lines(), SizeIs(0));
}

TEST_F(GpuReaderTest, KnowsDevicesByTheirUuidWhateverTheirOrder) {
  const auto reader = Open({{0, kSecondGpu}, {1, kFirstGpu}});
  EXPECT_EQ(ValuesOf(reader->Read(0))["gemmd_gpu_temperature_celsius"], 34);
  EXPECT_EQ(ValuesOf(reader->Read(1))["gemmd_gpu_temperature_celsius"], 61);
}

TEST_F(GpuReaderTest, AnUnsupportedQueryCostsItsGaugesAloneAndIsNotAskedAgain) {
  const std::set<std::string> all = NamesOf(ValuesOf(Open({{0, kFirstGpu}})->Read(0)));
  for (const auto& [function, names] : kReadBy) {
    SCOPED_TRACE(function);
    nvml_->Reset();
    nvml_->Answer(function, kNotSupported);
    const size_t lines = log_.lines().size();
    const auto reader = Open({{4, kFirstGpu}});
    for (int i = 0; i < 3; ++i) {
      std::set<std::string> rest = NamesOf(ValuesOf(reader->Read(0)));
      rest.insert(names.begin(), names.end());
      EXPECT_EQ(rest, all);
      EXPECT_EQ(ValuesOf(reader->Read(0)).size(), all.size() - names.size());
    }
    EXPECT_EQ(nvml_->calls(function), static_cast<int>(names.size()));
    std::vector<std::string> told = log_.lines();
    told.erase(told.begin(), told.begin() + static_cast<std::ptrdiff_t>(lines));
    EXPECT_THAT(told, SizeIs(names.size()));
    EXPECT_THAT(told, Each(AllOf(HasSubstr("device 4 has no gemmd_gpu_"),
                                 HasSubstr(function + " answers 3 (Not Supported)"))));
  }
}

TEST_F(GpuReaderTest, AFailureThatMayPassIsAskedAgainAndToldOnce) {
  const auto reader = Open({{0, kFirstGpu}});
  nvml_->Answer("nvmlDeviceGetPowerUsage", kUnknown);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(ValuesOf(reader->Read(0)).count("gemmd_gpu_power_watts"), 0u);
  EXPECT_THAT(log_.lines(), ElementsAre("warning device 0 has no gemmd_gpu_power_watts for now: "
                                        "nvmlDeviceGetPowerUsage answers 999 (Trouble)"));
  nvml_->Answer("nvmlDeviceGetPowerUsage", 0);
  EXPECT_EQ(ValuesOf(reader->Read(0))["gemmd_gpu_power_watts"], 412.345);
}

TEST_F(GpuReaderTest, ALostDeviceIsNotAskedAgainAndTheOthersAreReadOn) {
  const auto reader = Open({{0, kFirstGpu}, {1, kSecondGpu}});
  EXPECT_TRUE(reader->Read(0).has_value());
  nvml_->Answer("nvmlDeviceGetEnforcedPowerLimit", kGpuIsLost, kFirstGpu);
  EXPECT_FALSE(reader->Read(0).has_value());
  const int asked = nvml_->calls("nvmlDeviceGetUtilizationRates");
  EXPECT_FALSE(reader->Read(0).has_value());
  EXPECT_EQ(nvml_->calls("nvmlDeviceGetUtilizationRates"), asked);
  EXPECT_EQ(ValuesOf(reader->Read(1)).size(), std::size(kGpuGauges) + 1);
  EXPECT_THAT(log_.lines(), ElementsAre("warning device 0 has no gemmd_gpu_ metrics any more: "
                                        "nvmlDeviceGetEnforcedPowerLimit answers 15 (Trouble)"));
}

TEST_F(GpuReaderTest, ADeviceThatTheLibraryDoesNotKnowIsOneLineAndTheOthersAreRead) {
  const auto reader = Open({{0, "GPU-9"}, {1, kSecondGpu}});
  EXPECT_FALSE(reader->Read(0).has_value());
  EXPECT_FALSE(reader->Read(0).has_value());
  EXPECT_EQ(ValuesOf(reader->Read(1)).size(), std::size(kGpuGauges) + 1);
  EXPECT_THAT(log_.lines(), ElementsAre("warning device 0 (GPU-9) has no gemmd_gpu_ metrics: "
                                        "nvmlDeviceGetHandleByUUID answers 6 (Trouble)"));
}

TEST_F(GpuReaderTest, ASliceOfADeviceHasTheGaugesThatItAnswers) {
  const auto reader = Open({{0, "GPU-" + std::string(kSlice).substr(4)}});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ValuesOf(reader->Read(0)), (Values{{"gemmd_gpu_memory_used_bytes", 999},
                                                 {"gemmd_gpu_memory_total_bytes", 10'000}}));
  }
  EXPECT_THAT(log_.lines(), SizeIs(std::size(kGpuGauges) + 1 - 2));
}

TEST_F(GpuReaderTest, FunctionsThatTheLibraryLacksCostTheirGaugesAlone) {
  const auto reader = Open({{0, kFirstGpu}}, GEMMD_BARE_NVML);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ValuesOf(reader->Read(0)),
              (Values{{"gemmd_gpu_power_watts", 1.5}, {"gemmd_gpu_throttle_reason", 0x80}}));
  }
  EXPECT_THAT(log_.lines(), SizeIs(std::size(kGpuGauges) + 1 - 2));
  EXPECT_THAT(log_.lines(), ::testing::Contains(HasSubstr("has no nvmlDeviceGetClockInfo")));
  // Nor has it texts of errors.
  EXPECT_THAT(log_.lines(), ::testing::Contains(HasSubstr("nvmlDeviceGetTemperature answers 999")));
}

TEST_F(GpuReaderTest, WithoutTheLibraryTheReasonNamesIt) {
  EXPECT_THAT(WhyNot("libno-such-nvml.so.1"), HasSubstr("libno-such-nvml.so.1"));
  EXPECT_THAT(WhyNot("libm.so.6"), HasSubstr("libm.so.6 has not all of nvmlInit_v2"));
  nvml_->Answer("nvmlInit_v2", 9);
  EXPECT_THAT(WhyNot(GEMMD_FAKE_NVML), HasSubstr("nvmlInit_v2 answers 9 (Trouble)"));
  EXPECT_EQ(nvml_->users(), 0);
}

TEST_F(GpuReaderTest, GivesTheLibraryBack) {
  auto reader = Open({{0, kFirstGpu}});
  EXPECT_EQ(nvml_->users(), 1);
  reader.reset();
  EXPECT_EQ(nvml_->users(), 0);

  const auto loaded = [] {
    void* const library = dlopen(GEMMD_BARE_NVML, RTLD_NOW | RTLD_NOLOAD);
    if (library != nullptr) dlclose(library);
    return library != nullptr;
  };
  reader = Open({{0, kFirstGpu}}, GEMMD_BARE_NVML);
  EXPECT_TRUE(loaded());
  reader.reset();
  EXPECT_FALSE(loaded());
}

}  // namespace
}  // namespace gemmd::testing
