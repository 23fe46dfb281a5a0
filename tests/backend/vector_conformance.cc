// Products with few rows or few columns: the ends of chunks, of a thread's, a warp's and a block's
// share, in every transpose.
#include <array>
#include <vector>

#include "tests/backend/conformance.h"

namespace gemmd {
namespace {

// D has `few` rows and `many` columns, or the other way round.
GemmProblem MakeVectors(TypePair types, Transposes ops, bool few_rows, int64_t few, int64_t many,
                        int64_t k, EpilogueCase epilogue = {}) {
  return MakeProblem(types, ops, few_rows ? few : many, few_rows ? many : few, k, epilogue);
}

}  // namespace

TEST_P(VectorConformance, HoldsAroundTheEndsOfLinesAndOfK) {
  constexpr std::array<int64_t, 11> kDepths = {1, 7, 8, 9, 63, 64, 65, 257, 1031, 2049, 4096 + 3};
  constexpr std::array<int64_t, 13> kPads = {0, 1, 3, 8, 5, 2, 7, 4, 6, 9, 11, 10, 12};
  const std::vector<TypePair> pairs = types();
  uint64_t seed = TestSeed();
  size_t turn = 0;
  for (const Transposes ops : kAllTransposes) {
    for (const bool few_rows : {true, false}) {
      for (const int64_t few : {1, 2, 3, 4}) {
        for (const int64_t many : {1, 7, 8, 9, 63, 64, 65, 1000, 4099}) {
          const TypePair pair = Turn(pairs, turn);
          const EpilogueCase epilogue = Turn(EpiloguesFor(pair.ab), turn);
          const GemmProblem problem =
              MakeVectors(pair, ops, few_rows, few, many, Turn(kDepths, turn), epilogue);
          Check(WithPadding(problem, Turn(kPads, turn++)), ++seed, constraints());
        }
      }
    }
  }
}

TEST_P(VectorConformance, SharesOutALongK) {
  constexpr std::array<int64_t, 9> kFewLines = {1, 9, 65, 4, 131, 2, 33, 8, 12};
  const std::vector<TypePair> pairs = types();
  uint64_t seed = TestSeed();
  size_t turn = 0;
  for (const Transposes ops : kAllTransposes) {
    for (const bool few_rows : {true, false}) {
      for (const int64_t few : {1, 2, 3, 4}) {
        const TypePair pair = Turn(pairs, turn);
        const int64_t many = Turn(kFewLines, turn++);
        for (const int64_t k : {4096 + 3, 4096, 8192 + 1}) {
          const EpilogueCase epilogue = Turn(EpiloguesFor(pair.ab), seed);
          const GemmProblem problem = MakeVectors(pair, ops, few_rows, few, many, k, epilogue);
          Check(WithPadding(problem, 3), ++seed, constraints());
        }
      }
      Check(MakeVectors(Turn(pairs, turn++), ops, few_rows, 2, 4099, 4099), ++seed, constraints());
    }
  }
}

// As many lines as it takes for a warp to have rows of its own, or a block the most columns.
TEST_P(VectorConformance, HoldsForMoreLinesThanADeviceHasWarps) {
  uint64_t seed = TestSeed();
  for (const Transposes ops : kAllTransposes) {
    for (const bool few_rows : {true, false}) {
      for (const int64_t few : {1, 3}) {
        const GemmProblem problem = MakeVectors(Turn(types(), seed), ops, few_rows, few, 8449, 67);
        Check(WithPadding(problem, 1), ++seed, constraints());
      }
    }
  }
}

TEST_P(VectorConformance, StridesAndBroadcastsOverABatch) {
  uint64_t seed = TestSeed();
  for (const TypePair pair : types()) {
    EpilogueCase epilogue;
    if (pair.ab != DType::kI8) epilogue.beta = 1;
    for (const Transposes ops : kAllTransposes) {
      for (const int broadcast : {0, 1, 2}) {
        for (const bool few_rows : {true, false}) {
          GemmProblem problem =
              MakeProblem(pair, ops, few_rows ? 3 : 100, few_rows ? 100 : 2, 67, epilogue);
          problem.batch = 3;
          problem = WithPadding(problem, 3);
          if (broadcast == 1) problem.a.batch_stride = 0;
          if (broadcast == 2) problem.b.batch_stride = problem.c.batch_stride = 0;
          Check(problem, ++seed, constraints());
        }
      }
    }
  }
}

}  // namespace gemmd
