// What a product is, on any backend and with any plan.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/core/numeric.h"
#include "kernels/core/reference_gemm.h"
#include "tests/backend/conformance.h"

namespace gemmd {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> Elements(const GemmData& data) {
  std::vector<double> values(static_cast<size_t>(data.problem().m * data.problem().n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = data.ResultAt(static_cast<int64_t>(i));
  return values;
}

}  // namespace

TEST_P(ProductConformance, MultipliesAwkwardSizesInEveryTranspose) {
  constexpr int64_t kSizes[] = {1,  2,  7,  8,   9,   16,  17,  31,  37,  61,
                                63, 64, 65, 127, 128, 129, 131, 255, 256, 257};
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937_64 random(seed);
  const auto pick = [&] { return kSizes[random() % std::size(kSizes)]; };
  const auto epilogues = EpiloguesFor(types().ab);
  for (int64_t fixed : kSizes) {
    for (size_t turn = 0; turn < 4; ++turn) {
      int64_t extents[3] = {pick(), pick(), pick()};
      extents[(turn + static_cast<size_t>(fixed)) % 3] = fixed;
      const GemmProblem problem = MakeProblem(types(), kAllTransposes[turn], extents[0], extents[1],
                                              extents[2], epilogues[random() % epilogues.size()]);
      Check(WithPadding(problem, static_cast<int64_t>(random() % 4)), random());
    }
  }
}

TEST_P(ProductConformance, MultipliesVectors) {
  for (const Transposes ops : kAllTransposes) {
    Check(MakeProblem(types(), ops, 1, 700, 333), TestSeed());
    Check(MakeProblem(types(), ops, 700, 1, 333), TestSeed() + 1);
    Check(MakeProblem(types(), ops, 1, 1, 5001), TestSeed() + 2);
    Check(MakeProblem(types(), ops, 300, 301, 1), TestSeed() + 3);
  }
}

TEST_P(ProductConformance, MultipliesPastTheCopiedPanels) {
  Check(WithPadding(MakeProblem(types(), {Op::kN, Op::kT}, 1025, 33, 1026), 1), TestSeed());
  Check(WithPadding(MakeProblem(types(), {Op::kT, Op::kN}, 19, 1031, 2049), 1), TestSeed() + 1);
}

TEST_P(ProductConformance, NeverReadsCWhileBetaIsZero) {
  for (const int64_t extent : {127, 129}) {
    GemmData data(WithPadding(MakeProblem(types(), kNN, extent, extent, 40), 2), TestSeed());
    data.SetC(Constant(kNaN));
    HostOperands operands = data.operands();
    ASSERT_EQ(operands.c, nullptr);
    Check(data);
  }
}

TEST_P(ProductConformance, NeverReadsTheOldResult) {
  GemmData data(MakeProblem(types(), kNN, 70, 70, 3), TestSeed());
  ASSERT_TRUE(Run(data).status.ok());
  const std::vector<std::byte> over_nan = data.result();
  data.PoisonResult(std::byte{0x7f});
  ASSERT_TRUE(Run(data).status.ok());
  EXPECT_EQ(over_nan, data.result());
}

TEST_P(FloatConformance, NeverReadsWhatAScalarTooSmallForTheAccumulatorScales) {
  GemmProblem problem = MakeProblem(types(), kNN, 33, 65, 40, {.alpha = 0, .beta = 2});
  if (types().ab == DType::kF64) GTEST_SKIP() << "holds it";
  GemmData data(problem, TestSeed());
  problem.alpha = 1e-50;
  ASSERT_TRUE(Run(problem, data.operands()).status.ok());
  Check(data);  // the same as alpha = 0, A and B null
  problem = MakeProblem(types(), kNN, 33, 65, 40, {.beta = 0});
  GemmData product(problem, TestSeed());
  problem.beta = 1e-50;
  ASSERT_TRUE(Run(problem, product.operands()).status.ok());
  const Mismatch mismatch = CompareWithReference(product.problem(), product.operands());
  EXPECT_TRUE(mismatch.ok) << mismatch.ToString();
}

// Without a product, so that the accumulator holds the bias itself and has no error to hide behind.
TEST_P(FloatConformance, ActivationsKeepTheirTails) {
  if (types().d != DType::kF32 && types().d != DType::kF64) GTEST_SKIP() << "too few exponents";
  const std::array<double, 8> tail = {-3, -5, -7, -9, -12, -30, -85, -89};
  for (const Activation act : {Activation::kGelu, Activation::kSilu}) {
    SCOPED_TRACE(Name(act));
    GemmData data(MakeProblem(types(), kNN, 3, 8, 0, {.bias = BiasAxis::kPerColumn, .act = act}),
                  TestSeed());
    data.SetBias([&](int64_t, int64_t, int64_t j) { return tail[static_cast<size_t>(j)]; });
    ASSERT_TRUE(Run(data).status.ok());
    const std::vector<double> expected = ReferenceGemm(data.problem(), data.operands());
    for (size_t i = 0; i < expected.size(); ++i) {
      const double got = data.ResultAt(static_cast<int64_t>(i));
      // Where a float ends, its subnormals are what is left of the relative error.
      EXPECT_NEAR(got, expected[i], std::fabs(expected[i]) * 1e-4 + 1e-43) << tail[i % 8];
    }
  }
}

TEST_P(FloatConformance, NeverReadsAAndBWhileAlphaIsZero) {
  GemmData data(MakeProblem(types(), kNN, 129, 65, 40, {.alpha = 0, .beta = 2}), TestSeed());
  data.SetC([](int64_t, int64_t i, int64_t j) { return static_cast<double>((i * 7 + j) % 64); });
  ASSERT_EQ(data.operands().a, nullptr);
  ASSERT_TRUE(Run(data).status.ok());
  for (int64_t i = 0; i < 129; ++i) {
    for (int64_t j = 0; j < 65; ++j) {
      ASSERT_EQ(data.ResultAt(i * 65 + j), 2.0 * static_cast<double>((i * 7 + j) % 64));
    }
  }
}

TEST_P(ProductConformance, GivesBetaCWhenKIsZero) {
  Check(MakeProblem(types(), kNN, 33, 65, 0), TestSeed());
  GemmData zeros(MakeProblem(types(), {Op::kT, Op::kT}, 33, 65, 0), TestSeed());
  ASSERT_TRUE(Run(zeros).status.ok());
  for (const double value : Elements(zeros)) ASSERT_EQ(value, 0);
  if (!floating()) return;
  for (const EpilogueCase& epilogue : EpiloguesFor(types().ab)) {
    Check(MakeProblem(types(), kNN, 33, 65, 0, epilogue), TestSeed());
  }
}

TEST_P(ProductConformance, TakesEmptyProducts) {
  for (const auto& [m, n, batch] : {std::array<int64_t, 3>{0, 5, 1}, {5, 0, 1}, {5, 5, 0}}) {
    GemmProblem problem = MakeProblem(types(), kNN, m, n, 7);
    problem.batch = batch;
    const StatusOr<Plan> plan = planner().PlanFor(problem);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->row, -1);
    GemmData data(problem, TestSeed());
    const LaneResult result = Run(data);
    EXPECT_TRUE(result.status.ok()) << result.status.ToString();
    EXPECT_TRUE(data.GuardsIntact());
  }
}

TEST_P(ProductConformance, LeavesOperandsAndTheirPaddingAlone) {
  EpilogueCase epilogue;
  if (floating()) epilogue = {.alpha = 2, .beta = 0.5, .bias = BiasAxis::kPerRow};
  GemmData data(WithPadding(MakeProblem(types(), {Op::kT, Op::kN}, 67, 45, 31, epilogue), 3),
                TestSeed());
  GemmData before = data;
  Check(data);
  const GemmProblem& p = data.problem();
  const auto same = [&](const std::byte* x, const std::byte* y, const MatrixLayout& layout,
                        DType type) {
    const StatusOr<int64_t> bytes = StorageBytes(layout, p.batch, type, "operand");
    return std::memcmp(x, y, static_cast<size_t>(*bytes)) == 0;
  };
  EXPECT_TRUE(same(data.operands().a, before.operands().a, p.a, p.type_a));
  EXPECT_TRUE(same(data.operands().b, before.operands().b, p.b, p.type_b));
  if (!p.reads_c()) return;
  EXPECT_TRUE(same(data.operands().c, before.operands().c, p.c, p.type_d));
}

TEST_P(ProductConformance, TakesOperandsAtAnyAddress) {
  const GemmProblem problem = MakeProblem(types(), {Op::kN, Op::kT}, 37, 29, 41);
  GemmData data(problem, TestSeed());
  ASSERT_TRUE(Run(data).status.ok());
  const HostOperands aligned = data.operands();
  const auto shifted = [](const std::byte* from, int64_t elements, DType type) {
    const auto bytes = static_cast<size_t>(elements * SizeOf(type));
    std::vector<std::byte> copy(1);
    copy.reserve(bytes + 1);
    for (size_t i = 0; i < bytes; ++i) copy.push_back(from[i]);
    return copy;
  };
  const std::vector<std::byte> a = shifted(aligned.a, problem.m * problem.k, problem.type_a);
  const std::vector<std::byte> b = shifted(aligned.b, problem.k * problem.n, problem.type_b);
  std::vector<std::byte> d = shifted(aligned.d, problem.m * problem.n, problem.type_d);
  std::fill(d.begin() + 1, d.end(), std::byte{0xff});
  const LaneResult result = Run(problem, {.a = a.data() + 1, .b = b.data() + 1, .d = d.data() + 1});
  ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  EXPECT_EQ(std::vector<std::byte>(d.begin() + 1, d.end()), data.result());
}

TEST_P(FloatConformance, PropagatesNaNAndInfinity) {
  const int64_t m = 66, n = 67, k = 35;
  for (const Activation act : {Activation::kNone, Activation::kRelu}) {
    GemmData data(MakeProblem(types(), kNN, m, n, k, {.act = act}), TestSeed());
    // Rows: 0 has NaN, 1 infinity beside ones, 2 infinities of both signs, 3 infinity that meets
    // a zero of B in column 5, 4 and on are zero or one.
    data.SetA([&](int64_t, int64_t i, int64_t l) {
      if (i == 0 && l == 3) return kNaN;
      if (i == 1 && l == 4) return kInf;
      if (i == 2 && l == 4) return l == 4 ? kInf : 0;
      if (i == 2 && l == 7) return -kInf;
      if (i == 3 && l == 9) return -kInf;
      return i == 4 ? 0.0 : 1.0;
    });
    data.SetB([&](int64_t, int64_t l, int64_t j) {
      if (j == 5 && l == 9) return 0.0;
      return j == 6 && l == 11 ? kNaN : 1.0;
    });
    data.PoisonResult(std::byte{0xa5});
    Check(data);
    EXPECT_TRUE(std::isnan(data.ResultAt(0)));
    EXPECT_EQ(data.ResultAt(1 * n + 1), kInf);
    EXPECT_TRUE(std::isnan(data.ResultAt(2 * n + 1)));
    EXPECT_TRUE(std::isnan(data.ResultAt(3 * n + 5)));
    EXPECT_EQ(data.ResultAt(3 * n + 1), act == Activation::kRelu ? 0 : -kInf);
    EXPECT_TRUE(std::isnan(data.ResultAt(4 * n + 6))) << "0 * NaN must be NaN";
    EXPECT_EQ(data.ResultAt(4 * n + 1), 0);
    EXPECT_EQ(data.ResultAt(5 * n + 1), static_cast<double>(k));
  }
}

TEST_P(ProductConformance, AccumulatesInAWiderTypeAndRoundsOnce) {
  GemmData ones(MakeProblem(types(), kNN, 9, 10, 4096), TestSeed());
  ones.SetA(Constant(1));
  ones.SetB(Constant(1));
  Check(ones);
  for (const double value : Elements(ones)) ASSERT_EQ(value, 4096);

  // 65504 is the largest f16; up to 65519 rounds to it, from 65520 on to infinity.
  for (const int64_t half_sum : {32752, 32759, 32760, 32768}) {
    GemmData twos(MakeProblem(types(), kNN, 3, 5, half_sum), TestSeed());
    twos.SetA(Constant(1));
    twos.SetB(Constant(2));
    Check(twos);
    const double sum = 2.0 * static_cast<double>(half_sum);
    double expected = sum;
    if (types().d == DType::kF16) expected = sum < 65520 ? 65504 : kInf;
    if (types().d == DType::kBF16) expected = BF16ToFloat(FloatToBF16(static_cast<float>(sum)));
    for (const double value : Elements(twos)) ASSERT_EQ(value, expected) << "sum " << sum;
  }
}

TEST_P(FloatConformance, KeepsSmallSumsOfLargePairsThatCancel) {
  constexpr int64_t kPairs = 64;
  GemmData data(MakeProblem(types(), {Op::kN, Op::kT}, 20, 21, 2 * kPairs + 3), TestSeed());
  // Every partial sum is a multiple of 0.5 below 2^23, so exact in fp32 in any order.
  data.SetA([](int64_t, int64_t, int64_t l) {
    if (l >= 2 * kPairs) return 0.5;
    return l % 2 == 0 ? 57344.0 : -57344.0;
  });
  data.SetB(Constant(1));
  Check(data);
  for (const double value : Elements(data)) ASSERT_EQ(value, 1.5);
}

TEST_P(Int8Conformance, SumsExtremesExactly) {
  GemmData data(MakeProblem(types(), {Op::kN, Op::kT}, 3, 2, kMaxInt8K), TestSeed());
  data.SetA([](int64_t, int64_t i, int64_t) { return i == 0 ? -128.0 : 127.0; });
  data.SetB([](int64_t, int64_t j, int64_t) { return j == 0 ? -128.0 : 127.0; });
  Check(data);
  EXPECT_EQ(data.ResultAt(0), 128.0 * 128.0 * 131071.0);
  EXPECT_EQ(data.ResultAt(1), -128.0 * 127.0 * 131071.0);
  EXPECT_EQ(data.ResultAt(3), 127.0 * 127.0 * 131071.0);
}

TEST_P(ProductConformance, StridesAndBroadcastsOverABatch) {
  EpilogueCase epilogue;
  if (floating()) epilogue = {.alpha = 0.5, .beta = -1, .bias = BiasAxis::kPerColumn};
  for (int broadcast = 0; broadcast < 8; ++broadcast) {
    GemmProblem problem = MakeProblem(types(), kAllTransposes[broadcast % 4], 19, 23, 17, epilogue);
    problem.batch = 5;
    problem = WithPadding(problem, 2);
    if (broadcast & 1) problem.a.batch_stride = 0;
    if (broadcast & 2) problem.b.batch_stride = 0;
    if (broadcast & 4) problem.c.batch_stride = 0;
    Check(problem, TestSeed() + static_cast<uint64_t>(broadcast));
  }
}

TEST_P(ProductConformance, TakesOverlappingStrides) {
  GemmProblem problem = MakeProblem(types(), kNN, 8, 9, 10);
  problem.batch = 4;
  problem.a.batch_stride = problem.a.ld;  // each problem starts one row later
  Check(problem, TestSeed());
}

}  // namespace gemmd
