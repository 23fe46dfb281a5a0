// The golden lists are rewritten from what the code exports by
//   GEMMD_UPDATE_GOLDEN=1 build/cpu/bin/metrics_test
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "server/metrics/gpu_collector.h"
#include "server/metrics/stall_collector.h"
#include "tests/support/fake_nvml.h"
#include "tests/support/manual_sampler.h"
#include "tests/unit/log_lines.h"
#include "tests/unit/metrics_fixture.h"

namespace gemmd::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::Not;

std::string TypeName(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter: return "counter";
    case prometheus::MetricType::Gauge: return "gauge";
    case prometheus::MetricType::Histogram: return "histogram";
    default: return "other";
  }
}

// "name type label,label" a family, sorted.
std::set<std::string> ShapeOf(const Families& families) {
  std::set<std::string> lines;
  for (const auto& family : families) {
    for (const auto& metric : family.metric) {
      std::string line = family.name + " " + TypeName(family.type);
      const char* separator = " ";
      for (const auto& [name, value] : LabelsOf(metric)) {
        line += separator + name;
        separator = ",";
      }
      lines.insert(line);
    }
  }
  return lines;
}

// "name label value value..." a label of what is exported from a kernel's first launch on.
std::set<std::string> LaunchLabels(const Families& families) {
  std::map<std::string, std::set<std::string>> values;
  for (const auto& family : families) {
    for (const auto& metric : family.metric) {
      const Labels labels = LabelsOf(metric);
      if (labels.count("stages") == 0) continue;
      for (const auto& [name, value] : labels) values[family.name + " " + name].insert(value);
    }
  }
  std::set<std::string> lines;
  for (const auto& [label, all] : values) {
    std::string line = label;
    for (const std::string& value : all) line += " " + value;
    lines.insert(line);
  }
  return lines;
}

// The lines of a golden file, which `exported` replaces where an update is asked for.
std::set<std::string> GoldenLines(const std::string& name, const std::set<std::string>& exported) {
  const std::string path = std::string(GEMMD_GOLDEN_DIR) + "/" + name;
  if (std::getenv("GEMMD_UPDATE_GOLDEN") != nullptr) {
    std::ofstream file(path);
    for (const std::string& line : exported) file << line << "\n";
    EXPECT_TRUE(file.flush().good()) << path;
  }
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::set<std::string> golden;
  for (std::string line; std::getline(file, line);) golden.insert(line);
  return golden;
}

// A generous bound of what a driver names.
constexpr int kReasons = 32;

// Every kernel was seen to wait for every reason: the most that sampling ever exports, however many
// functions and devices there are.
PcSamples AllThereAre() {
  PcSamples samples;
  for (int kernel = 0; kernel < kSampledKernels; ++kernel) {
    for (int function = 0; function < 2; ++function) {
      samples.functions.push_back(
          SamplesOf(kernel, std::vector<int64_t>(kReasons, 1)).functions[0]);
    }
  }
  return samples;
}

std::vector<std::string> ReasonNames() {
  std::vector<std::string> names;
  for (int i = 0; i < kReasons; ++i) names.push_back("reason_" + std::to_string(i));
  return names;
}

// With the gauges of GPUs and their samples.
class MetricNamesTest : public MetricsTest {
 protected:
  void StartWithGpus(int count) {
    Start();
    FakeNvml* const nvml = FakeNvml::Get();
    ASSERT_NE(nvml, nullptr) << GEMMD_FAKE_NVML;
    nvml->Reset();
    std::vector<GpuDevice> devices;
    for (int i = 0; i < count; ++i) devices.push_back({i, kFirstGpu});
    GpuOptions options;
    options.library = GEMMD_FAKE_NVML;
    options.interval = std::chrono::milliseconds(1);
    gpus_ = std::make_unique<GpuCollector>(devices, options, log_.logger());
    // The first of the second reading: all of the first is there.
    nvml->WaitForCalls("nvmlDeviceGetTemperature", count + 1);
    sampler_->SetSamples(AllThereAre());
    ASSERT_TRUE(stalls_.Sample(sampled_, [] { return OkStatus(); }).ok());
  }

  Families ScrapeAll() const {
    return And(And(Scrape(), gpus_->Collect()), StallCollector(stalls_).Collect());
  }
  static Families And(Families families, const Families& more) {
    families.insert(families.end(), more.begin(), more.end());
    return families;
  }

  LogLines log_;
  std::unique_ptr<GpuCollector> gpus_;
  const std::shared_ptr<ManualSampler> sampler_ = std::make_shared<ManualSampler>(ReasonNames());
  ManualBackend sampled_{{.traits = H200Traits(), .sampler = sampler_}};
  StallSampler stalls_{{&sampled_}, {}, nullptr};
};

TEST_F(MetricNamesTest, ExportExactlyTheGoldenNamesTypesAndLabels) {
  StartWithGpus(1);
  RunOneOfEachKind();
  RunARing();
  const std::set<std::string> exported = ShapeOf(ScrapeAll());
  EXPECT_EQ(exported, GoldenLines("metrics.txt", exported));
}

TEST_F(MetricNamesTest, LabelLaunchesByTheGoldenValues) {
  Start();
  RunOneOfEachKind();
  RunEveryPlan();
  const std::set<std::string> values = LaunchLabels(registry_->Collect());
  EXPECT_EQ(values, GoldenLines("launch_labels.txt", values));
}

TEST_F(MetricNamesTest, AreNamedByTheRulesOfPrometheus) {
  StartWithGpus(1);
  RunARing();
  for (const auto& family : ScrapeAll()) {
    EXPECT_EQ(family.name.rfind("gemmd_", 0), 0u) << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_EQ(family.help.find_first_of("\n\\"), std::string::npos) << family.name;
    const bool counter = family.type == prometheus::MetricType::Counter;
    EXPECT_EQ(::testing::Value(family.name, EndsWith("_total")), counter) << family.name;
    EXPECT_THAT(family.name, Not(ContainsRegex("_(ms|us|ns|millis|kib|mib)(_|$)")));
  }
}

int SeriesOf(const Families& families) {
  std::istringstream text(prometheus::TextSerializer().Serialize(families));
  int series = 0;
  for (std::string line; std::getline(text, line);) series += line.front() != '#' ? 1 : 0;
  return series;
}

TEST_F(MetricNamesTest, KeepTheirSeriesBelowThreeThousandOnEightDevicesThatRanEveryPlan) {
  StartWithGpus(8);
  const PoolCollector eight(*engine_, replies_, std::vector<const Backend*>(8, backend_.get()), {});
  RunOneOfEachKind();
  EXPECT_GT(RunEveryPlan(), 400);
  const Families families = And(And(registry_->Collect(), eight.Collect()), gpus_->Collect());
  EXPECT_GT(SeriesOf(families), 500);
  EXPECT_LT(SeriesOf(families), 3000);
}

TEST_F(MetricNamesTest, SamplesAddAtMostAThousandSeriesOnAnyNumberOfDevices) {
  StartWithGpus(1);
  const Families samples = StallCollector(stalls_).Collect();
  EXPECT_EQ(samples.back().metric.size(), static_cast<size_t>(kSampledKernels * kReasons));
  EXPECT_LT(SeriesOf(samples), 1000);
}

TEST_F(MetricNamesTest, ExportAKernelAndStageCountFromItsFirstLaunchOn) {
  Start();
  const auto count = [this] { return SeriesOf(Scrape()); };
  const int before = count();
  EXPECT_LT(before, 500);
  RunARing();
  const int launched = count();
  EXPECT_GT(launched, before);
  RunARing();
  EXPECT_EQ(count(), launched);
}

TEST_F(MetricNamesTest, HaveASeriesForEveryEndOfARequestFromTheStart) {
  Start();
  const auto count = [this] {
    size_t series = 0;
    for (const auto& family : Scrape()) {
      const bool of_a_launch = family.name == "gemmd_kernel_launches_total" ||
                               family.name == "gemmd_kernel_duration_seconds" ||
                               family.name == "gemmd_plan_selected_total";
      if (!of_a_launch) series += family.metric.size();
    }
    return series;
  };
  const size_t before = count();
  RunOneOfEachKind();
  EXPECT_EQ(count(), before);
}

}  // namespace
}  // namespace gemmd::testing
