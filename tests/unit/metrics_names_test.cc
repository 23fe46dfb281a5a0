// The golden list is rewritten from what the code exports by
//   GEMMD_UPDATE_GOLDEN=1 build/cpu/bin/metrics_test
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

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

TEST_F(MetricsTest, ExportExactlyTheGoldenNamesTypesAndLabels) {
  Start();
  RunOneOfEachKind();
  const std::set<std::string> exported = ShapeOf(Scrape());
  const std::string path = std::string(GEMMD_GOLDEN_DIR) + "/metrics.txt";
  if (std::getenv("GEMMD_UPDATE_GOLDEN") != nullptr) {
    std::ofstream file(path);
    for (const std::string& line : exported) file << line << "\n";
    ASSERT_TRUE(file.flush().good()) << path;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::set<std::string> golden;
  for (std::string line; std::getline(file, line);) golden.insert(line);
  EXPECT_EQ(exported, golden);
}

TEST_F(MetricsTest, AreNamedByTheRulesOfPrometheus) {
  Start();
  for (const auto& family : Scrape()) {
    EXPECT_EQ(family.name.rfind("gemmd_", 0), 0u) << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_EQ(family.help.find_first_of("\n\\"), std::string::npos) << family.name;
    const bool counter = family.type == prometheus::MetricType::Counter;
    EXPECT_EQ(::testing::Value(family.name, EndsWith("_total")), counter) << family.name;
    EXPECT_THAT(family.name, Not(ContainsRegex("_(ms|us|ns|millis|kib|mib)(_|$)")));
  }
}

TEST_F(MetricsTest, KeepTheirSeriesBelowThreeThousandOnEightDevices) {
  Start();
  const PoolCollector eight(*engine_, replies_, std::vector<const Backend*>(8, backend_.get()), {});
  RunOneOfEachKind();
  Families families = registry_->Collect();
  const Families pools = eight.Collect();
  families.insert(families.end(), pools.begin(), pools.end());
  std::istringstream text(prometheus::TextSerializer().Serialize(families));
  int series = 0;
  for (std::string line; std::getline(text, line);) series += line.front() != '#' ? 1 : 0;
  EXPECT_GT(series, 500);
  EXPECT_LT(series, 3000);
}

TEST_F(MetricsTest, MakeNoNewSeriesWhileServing) {
  Start();
  const auto count = [this] {
    size_t series = 0;
    for (const auto& family : Scrape()) series += family.metric.size();
    return series;
  };
  const size_t before = count();
  RunOneOfEachKind();
  EXPECT_EQ(count(), before);
}

}  // namespace
}  // namespace gemmd::testing
