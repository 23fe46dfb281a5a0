// Every kernel row at every stage count: where tiles and the ring begin and end.
#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "tests/backend/conformance.h"

namespace gemmd {

TEST_P(RowConformance, HoldsAroundTheRingForEveryTranspose) {
  const int64_t stages = std::max(GetParam().stages, 3);
  const std::set<int64_t> k_tiles = {1, std::max<int64_t>(1, stages - 1), stages, stages + 1,
                                     2 * stages + 1};
  uint64_t seed = TestSeed();
  for (const TypePair pair : types()) {
    for (const Transposes ops : kAllTransposes) {
      for (const int64_t tiles : k_tiles) {
        for (const int64_t in_last : {tile_k(), int64_t{1}}) {
          const int64_t k = (tiles - 1) * tile_k() + in_last;
          const int64_t pad = static_cast<int64_t>(seed % 3);
          Check(WithPadding(MakeProblem(pair, ops, 37, 27, k), pad), ++seed, constraints());
        }
      }
    }
  }
}

TEST_P(RowConformance, HoldsAroundTheEdgesOfATile) {
  const auto pairs = types();
  uint64_t seed = TestSeed();
  size_t turn = 0;
  for (const int64_t m : {int64_t{1}, tile_m() - 1, tile_m(), tile_m() + 1}) {
    for (const int64_t n : {int64_t{1}, tile_n() - 1, tile_n(), tile_n() + 1}) {
      for (const Transposes ops : kAllTransposes) {
        const TypePair pair = Turn(pairs, turn);
        const int64_t k = Turn(std::vector<int64_t>{1, 7, tile_k() + 1}, turn);
        const int64_t pad = Turn(std::vector<int64_t>{0, 1, 3, 8, 5}, turn++);
        Check(WithPadding(MakeProblem(pair, ops, m, n, k), pad), ++seed, constraints());
      }
    }
  }
}

TEST_P(RowConformance, AppliesEveryEpilogueAcrossTiles) {
  uint64_t seed = TestSeed();
  size_t turn = 0;
  for (const TypePair pair : types()) {
    for (const EpilogueCase& epilogue : EpiloguesFor(pair.ab)) {
      const GemmProblem problem = MakeProblem(pair, Turn(kAllTransposes, turn++), tile_m() + 3,
                                              tile_n() + 1, tile_k() + 9, epilogue);
      Check(WithPadding(problem, 5), ++seed, constraints());
    }
  }
}

TEST_P(RowConformance, StridesAndBroadcastsOverABatchOfTiles) {
  uint64_t seed = TestSeed();
  for (const TypePair pair : types()) {
    for (const int broadcast : {0, 1, 2}) {
      EpilogueCase epilogue;
      if (pair.ab != DType::kI8) epilogue.beta = 1;
      GemmProblem problem = MakeProblem(pair, kAllTransposes[broadcast], tile_m() / 2 + 1,
                                        tile_n() / 2 + 1, tile_k() + 1, epilogue);
      problem.batch = 3;
      problem = WithPadding(problem, 3);
      if (broadcast == 1) problem.a.batch_stride = 0;
      if (broadcast == 2) problem.b.batch_stride = problem.c.batch_stride = 0;
      Check(problem, ++seed, constraints());
    }
  }
}

TEST_P(RowConformance, AddsUpTilesInParts) {
  uint64_t seed = TestSeed();
  size_t turn = 0;
  for (const int split : {2, 3, 4, 8, 17}) {
    const TypePair pair = Turn(types(), turn);
    const EpilogueCase epilogue = Turn(EpiloguesFor(pair.ab), turn);
    const Transposes ops = Turn(kAllTransposes, turn++);
    const int64_t k = (2 * split + 1) * tile_k() - 3;
    PlanConstraints parts = constraints();
    parts.split_k = split;
    for (const int batch : {1, 2}) {
      GemmProblem problem = MakeProblem(pair, ops, tile_m() + 3, tile_n() - 1, k, epilogue);
      problem.batch = batch;
      problem = WithPadding(problem, 3);
      const std::vector<Plan> plans = planner().Candidates(problem, parts);
      if (plans.empty()) GTEST_SKIP() << planner().PlanFor(problem, parts).status().message();
      for (const Plan& plan : plans) CheckPlan(problem, ++seed, plan);
    }
  }
}

// Two blocks with neighbouring tiles load half a panel each for both; one of three has no partner.
TEST_P(RowConformance, SharesPanelsInPairs) {
  uint64_t seed = TestSeed();
  size_t turn = 0;
  int plans = 0;
  for (const Transposes ops : kAllTransposes) {
    const TypePair pair = Turn(types(), turn);
    const EpilogueCase epilogue = Turn(EpiloguesFor(pair.ab), turn++);
    const int64_t k = (GetParam().stages + 2) * tile_k() + 3;
    GemmProblem problem = MakeProblem(pair, ops, 2 * tile_m() + 5, 2 * tile_n() + 7, k, epilogue);
    problem.batch = 2;
    for (const Plan& plan : planner().Candidates(problem, constraints())) {
      if (!plan.pair || plan.split_k > 1) continue;
      CheckPlan(problem, ++seed, plan);
      ++plans;
    }
  }
  if (plans == 0) GTEST_SKIP() << "blocks of this kernel share nothing";
}

// More tiles than a device has SMs: the ring runs on from tile to tile.
TEST_P(RowConformance, WalksSeveralTilesWithOneRing) {
  // Of consumers that take tiles in turn, the second works only where a block has a second tile.
  if (GetParam().stages != 3 && !config().ping_pong) GTEST_SKIP() << "for 3 stages";
  uint64_t seed = TestSeed();
  for (const TypePair pair : {types().front(), types().back()}) {
    // Two rounds of the ring to a tile: a wait for one round must not take the one before for it.
    for (const int64_t k : {tile_k() + 9, 2 * GetParam().stages * tile_k()}) {
      const GemmProblem problem =
          MakeProblem(pair, Turn(kAllTransposes, seed), tile_m() * 19 + 5, tile_n() * 16 + 7, k,
                      Turn(EpiloguesFor(pair.ab), seed));
      for (const Plan& plan : planner().Candidates(problem, constraints())) {
        CheckPlan(problem, ++seed, plan);
      }
    }
  }
}

TEST_P(RowConformance, SpreadsNaNToItsRowAndColumnOnly) {
  for (const TypePair pair : types()) {
    if (pair.ab == DType::kI8) continue;
    const int64_t m = tile_m() + 2, n = tile_n() + 2, k = tile_k() + 5;
    GemmData data(MakeProblem(pair, {Op::kN, Op::kN}, m, n, k), TestSeed());
    const double nan = std::numeric_limits<double>::quiet_NaN();
    data.SetA([&](int64_t, int64_t i, int64_t l) { return i == m - 1 && l == 0 ? nan : 0.0; });
    data.SetB([&](int64_t, int64_t l, int64_t j) { return j == 0 && l == k - 1 ? nan : 1.0; });
    data.PoisonResult(std::byte{0xa5});
    Check(data, constraints());
  }
}

}  // namespace gemmd
