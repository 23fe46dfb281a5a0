#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/lab/hazard_report.h"
#include "kernels/lab/reference.h"

namespace gemmd::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr ArrayShape kShape = {.strips = 3, .panels = 5};

// The definition, word by word.
uint32_t SumOf(uint32_t seed, int strip, int panel, int warp) {
  uint32_t sum = 0;
  for (int word = 0; word < kPanelWords; ++word) {
    if (word / kWarpWords != warp) continue;
    const int row = strip * kPanelRows + word / kPanelRowWords;
    const int col = panel * kPanelRowWords + word % kPanelRowWords;
    const auto place = static_cast<uint32_t>(row * kShape.panels * kPanelRowWords + col);
    sum += ArrayWord(seed, place) * (2 * static_cast<uint32_t>(word) + 1);
  }
  return sum;
}

size_t At(int strip, int panel, int warp) {
  return static_cast<size_t>((strip * kShape.panels + panel) * kWarps + warp);
}

TEST(LabReferenceTest, SumsAreThoseOfTheDefinitionOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 7}) {
    const std::vector<uint32_t> sums = PanelSums(kShape, 9, 0, threads);
    ASSERT_EQ(sums.size(), 60u);
    for (int strip = 0; strip < kShape.strips; ++strip) {
      for (int panel = 0; panel < kShape.panels; ++panel) {
        for (int warp = 0; warp < kWarps; ++warp) {
          ASSERT_EQ(sums[At(strip, panel, warp)], SumOf(9, strip, panel, warp))
              << threads << " threads, " << strip << " " << panel << " " << warp;
        }
      }
    }
  }
}

TEST(LabReferenceTest, EverySeedPanelAndWarpHasASumOfItsOwn) {
  std::set<uint32_t> sums;
  for (const uint32_t seed : {1U, 2U, 3U}) {
    for (const uint32_t sum : PanelSums(kShape, seed, 0, 1)) sums.insert(sum);
  }
  for (int warp = 0; warp < kWarps; ++warp) sums.insert(PoisonSum(warp, 0));
  EXPECT_EQ(sums.size(), 3u * 60 + kWarps);
}

TEST(LabReferenceTest, WorkIsItsRoundsOneAfterAnother) {
  for (const int rounds : {0, 1, 2, 57}) {
    uint32_t sum = 12345;
    for (int round = 0; round < rounds; ++round) sum = sum * kWorkFactor + kWorkTerm;
    EXPECT_EQ(Work(rounds).After(12345), sum) << rounds;
  }
  const std::vector<uint32_t> bare = PanelSums(kShape, 9, 0, 1),
                              worked = PanelSums(kShape, 9, 5, 1);
  EXPECT_EQ(worked[17], Work(5).After(bare[17]));
  EXPECT_EQ(PoisonSum(2, 5), Work(5).After(PoisonSum(2, 0)));
}

TEST(LabReferenceTest, AWrongSumSaysWhoseWordsItHas) {
  const std::vector<uint32_t> expected = PanelSums(kShape, 9, 3, 1);
  EXPECT_TRUE(WrongSums(kShape, expected, expected, 3, 9).empty());
  std::vector<uint32_t> found = expected;
  found[At(0, 1, 3)] = expected[At(0, 3, 3)];  // a later panel
  found[At(1, 4, 0)] = expected[At(1, 2, 0)];  // an earlier one
  found[At(1, 4, 1)] = PoisonSum(1, 3);
  found[At(2, 0, 2)] = expected[At(1, 0, 2)];  // another block's: none of this one's
  found[At(2, 0, 3)] += 1;
  const std::vector<WrongSum> wrong = WrongSums(kShape, expected, found, 3, 4);
  ASSERT_EQ(wrong.size(), 5u);
  EXPECT_EQ(wrong[0].block, 0);
  EXPECT_EQ(wrong[0].step, 1);
  EXPECT_EQ(wrong[0].warp, 3);
  EXPECT_EQ(wrong[0].expected, expected[At(0, 1, 3)]);
  EXPECT_EQ(wrong[0].found, expected[At(0, 3, 3)]);
  EXPECT_EQ(wrong[0].origin, Origin::kPanel);
  EXPECT_EQ(wrong[0].from_step, 3);
  EXPECT_EQ(OriginText(wrong[0]), "step 3's panel, 2 later");
  EXPECT_EQ(OriginText(wrong[1]), "step 2's panel, 2 earlier");
  EXPECT_EQ(OriginText(wrong[2]), "the slot before its first copy");
  EXPECT_EQ(OriginText(wrong[3]), "words of several panels");
  EXPECT_EQ(wrong[4].origin, Origin::kMixed);  // beyond those that are explained
}

HazardRow SomeRow() {
  HazardRow row;
  row.hazard = &Hazards().front();
  row.mechanism = Mechanism::kTma;
  row.delay_clocks = 1000;
  row.iterations = 10;
  row.broken_failures = 7;
  row.broken_wrong_sums = 30;
  row.sums = 600;
  row.seed = 7;
  row.stages = 2;
  row.array = kShape;
  WrongSum wrong{.block = 1, .step = 2, .warp = 3, .expected = 11, .found = 22};
  wrong.origin = Origin::kPanel;
  wrong.from_step = 4;
  row.first_wrong.push_back({5, wrong});
  return row;
}

TEST(HazardReportTest, EveryFaultIsToldOnce) {
  std::set<Fault> faults;
  std::set<std::string> names;
  for (const Hazard& hazard : Hazards()) {
    EXPECT_TRUE(faults.insert(hazard.fault).second) << hazard.name;
    EXPECT_TRUE(names.insert(hazard.name).second) << hazard.name;
  }
  EXPECT_EQ(faults.size(), size_t{kFaults} - 1);
  EXPECT_EQ(faults.count(Fault::kNone), 0u);
}

TEST(HazardReportTest, SaysWhatWasRemovedAndWhoseWordsWereFound) {
  const std::string text = HazardReport({SomeRow()});
  EXPECT_THAT(text, HasSubstr("overwrite  tma     1000   10          0              7"));
  EXPECT_THAT(text, HasSubstr("5.0 %"));
  EXPECT_THAT(text, HasSubstr(Hazards().front().removed));
  EXPECT_THAT(text, HasSubstr(Hazards().front().why));
  EXPECT_THAT(text, HasSubstr("iteration 5, block 1, step 2, warp 3: 11 expected, 22 found: step "
                              "4's panel, 2 later"));
  EXPECT_THAT(text, Not(HasSubstr(Hazards()[2].removed)));  // no row of it
}

TEST(HazardReportTest, JsonHasTheCountsAndTheFirstWrongSums) {
  EXPECT_THAT(
      HazardJson(SomeRow()).text(),
      HasSubstr("\"mechanism\": \"tma\", \"iterations\": 10, \"delay_cycles\": 1000, "
                "\"correct_failures\": 0, \"broken_failures\": 7, \"sums\": 600, "
                "\"broken_wrong_sums\": 30, \"seed\": 7, \"stages\": 2, \"array_rows\": 96, "
                "\"array_cols\": 160, \"first_wrong\": [{\"iteration\": 5, "
                "\"block\": 1, \"step\": 2, \"warp\": 3, \"expected\": 11, \"found\": 22, "
                "\"origin\": \"panel\", \"from_step\": 4}], \"first_correct_wrong\": []"));
}

}  // namespace
}  // namespace gemmd::lab
