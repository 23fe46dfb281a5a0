#include "kernels/plan/tuning_table.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/problems.h"

namespace gemmd {
namespace {

TuningEntry Entry(const GemmProblem& problem, double seconds = 1e-3) {
  return {problem, {{Plan{.row = 0, .stages = 2}, seconds}}};
}

TEST(TuningTableTest, FindsWhatTakesTheSameTimeAndNothingElse) {
  GemmProblem p = Problem(512, 512, 512);
  p.batch = 3;
  p = WithPackedLayouts(p);
  TuningTable table;
  table.Add(Entry(p));
  EXPECT_NE(table.Find(p), nullptr);
  GemmProblem same = p;
  same.alpha = 2;
  same.a.ld = 1024;
  EXPECT_NE(table.Find(same), nullptr) << "a scalar and padding take no time";

  std::vector<GemmProblem> others(12, p);
  others[0].m = 520;
  others[1].n = 520;
  others[2].k = 520;
  others[3].batch = 2;
  others[4].op_a = Op::kT;
  others[5].op_b = Op::kT;
  others[6].type_d = DType::kF32;
  others[7].a.batch_stride = 0;
  others[8].b.batch_stride = 0;
  others[9].beta = 1;
  others[10].act = Activation::kRelu;
  others[11].alpha = 0;
  for (size_t i = 0; i < others.size(); ++i) EXPECT_EQ(table.Find(others[i]), nullptr) << i;
}

TEST(TuningTableTest, OneMatrixIsSharedByNobody) {
  GemmProblem p = Problem(512, 512, 512);
  TuningTable table;
  table.Add(Entry(p));
  p.a.batch_stride = 0;
  EXPECT_NE(table.Find(p), nullptr);
}

TEST(TuningTableTest, NearIsWithinAQuarterOctaveInEachExtent) {
  TuningTable table;
  table.Add(Entry(Problem(1024, 1024, 1024)));
  // 2^(1/4) * 1024 = 1217.7, 1024 / 2^(1/4) = 861.1
  for (const int64_t near : {864, 1024, 1216}) {
    EXPECT_NE(table.FindNear(Problem(near, 1024, 1024)), nullptr) << near;
    EXPECT_NE(table.FindNear(Problem(1024, near, 1024)), nullptr) << near;
    EXPECT_NE(table.FindNear(Problem(1024, 1024, near)), nullptr) << near;
    EXPECT_NE(table.FindNear(Problem(near, near, near)), nullptr) << near;
  }
  for (const int64_t far : {8, 856, 1224, 2048}) {
    EXPECT_EQ(table.FindNear(Problem(far, 1024, 1024)), nullptr) << far;
    EXPECT_EQ(table.FindNear(Problem(1024, far, 1024)), nullptr) << far;
    EXPECT_EQ(table.FindNear(Problem(1024, 1024, far)), nullptr) << far;
  }
}

TEST(TuningTableTest, NearHasTheSameAlignmentAndTraits) {
  TuningTable table;
  table.Add(Entry(Problem(1024, 1024, 1024)));
  EXPECT_EQ(table.FindNear(Problem(1025, 1024, 1024)), nullptr);
  EXPECT_EQ(table.FindNear(Problem(1024, 1023, 1024)), nullptr);
  EXPECT_EQ(table.FindNear(Problem(1024, 1024, 1020)), nullptr);
  GemmProblem transposed = Problem(1024, 1024, 1024);
  transposed.op_b = Op::kT;
  EXPECT_EQ(table.FindNear(transposed), nullptr);
}

TEST(TuningTableTest, TheClosestOfTheNearIsTaken) {
  TuningTable table;
  table.Add(Entry(Problem(1024, 1024, 1024), 1));
  table.Add(Entry(Problem(1088, 1024, 1024), 2));
  table.Add(Entry(Problem(1024, 1152, 1152), 3));
  const auto seconds = [&table](int64_t m, int64_t n, int64_t k) {
    return table.FindNear(Problem(m, n, k))->plans[0].seconds;
  };
  EXPECT_EQ(seconds(1024, 1024, 1024), 1);
  EXPECT_EQ(seconds(1032, 1024, 1024), 1);
  EXPECT_EQ(seconds(1080, 1024, 1024), 2);
  EXPECT_EQ(seconds(1032, 1152, 1144), 3);
}

TEST(TuningTableTest, AProblemHasOneEntryTheLast) {
  TuningTable table;
  table.Add(Entry(Problem(512, 512, 512), 1));
  table.Add(Entry(Problem(256, 256, 256), 2));
  table.Add(Entry(Problem(512, 512, 512), 3));
  ASSERT_EQ(table.size(), 2U);
  EXPECT_EQ(table.Find(Problem(512, 512, 512))->plans[0].seconds, 3);
  const std::vector<TuningEntry> entries = table.Entries();
  EXPECT_EQ(entries[0].problem.m, 256) << "what was measured again is the newest";
  EXPECT_EQ(entries[1].problem.m, 512);
}

TEST(TuningTableTest, AFullTableForgetsTheOldest) {
  TuningTable table;
  const auto most = static_cast<int64_t>(TuningTable::kMaxEntries);
  for (int64_t i = 0; i <= most; ++i) table.Add(Entry(Problem(1 + i, 64, 64)));
  EXPECT_EQ(table.size(), TuningTable::kMaxEntries);
  EXPECT_EQ(table.Find(Problem(1, 64, 64)), nullptr);
  EXPECT_NE(table.Find(Problem(2, 64, 64)), nullptr);
  EXPECT_NE(table.Find(Problem(most + 1, 64, 64)), nullptr);
  EXPECT_EQ(table.FindNear(Problem(1, 64, 64)), nullptr) << "nothing points at what was forgotten";
}

TEST(TuningTableTest, ACopyIsOfItsOwn) {
  TuningTable table;
  table.Add(Entry(Problem(512, 512, 512), 1));
  const TuningTable copy = table;
  table.Add(Entry(Problem(512, 512, 512), 2));
  EXPECT_EQ(copy.Find(Problem(512, 512, 512))->plans[0].seconds, 1);
}

TEST(TuningTableTest, TheLargestExtentsAndAnEmptyKAreProblemsAsAny) {
  TuningTable table;
  const GemmProblem large = Problem(kMaxExtent, kMaxExtent, kMaxExtent);
  const GemmProblem flat = Problem(512, 512, 0);
  table.Add(Entry(large));
  table.Add(Entry(flat));
  EXPECT_NE(table.Find(large), nullptr);
  EXPECT_NE(table.Find(flat), nullptr);
  EXPECT_EQ(table.FindNear(Problem(512, 512, 8)), nullptr);
}

}  // namespace
}  // namespace gemmd
