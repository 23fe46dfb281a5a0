// Lanes: exclusive, all of them right at once, and with the same bits each time.
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <stop_token>
#include <thread>
#include <vector>

#include "kernels/core/numeric.h"
#include "kernels/core/reference_gemm.h"
#include "tests/backend/conformance.h"

namespace gemmd {
namespace {

std::vector<GemmData*> Pointers(std::vector<GemmData>& data) {
  std::vector<GemmData*> pointers;
  for (GemmData& one : data) pointers.push_back(&one);
  return pointers;
}

}  // namespace

TEST_P(LaneConformance, ThirtyTwoDifferentProblemsAtOnceAreAllRight) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937_64 random(seed);
  const TypePair pairs[] = {kHalfTypes[0], kHalfTypes[3], kSingle};
  std::vector<GemmData> work;
  for (size_t i = 0; i < 32; ++i) {
    const auto extent = [&] { return static_cast<int64_t>(1 + random() % 200); };
    work.emplace_back(WithPadding(MakeProblem(pairs[i % 3], kAllTransposes[i / 3 % 4], extent(),
                                              extent(), extent(), EpiloguesFor(DType::kF32)[i % 5]),
                                  static_cast<int64_t>(i % 3)),
                      random());
  }
  RunConcurrently(Pointers(work));
  for (GemmData& data : work) {
    SCOPED_TRACE(ToString(data.problem()));
    const Mismatch mismatch = CompareWithReference(data.problem(), data.operands());
    EXPECT_TRUE(mismatch.ok) << mismatch.ToString();
    EXPECT_TRUE(data.GuardsIntact());
  }
}

TEST_P(LaneConformance, TheSameProblemGivesTheSameBitsOnEveryLane) {
  for (const TypePair pair : {kHalfTypes[1], kSingle}) {
    GemmProblem problem =
        MakeProblem(pair, {Op::kN, Op::kT}, 130, 140, 517, EpiloguesFor(pair.ab)[4]);
    problem.deterministic = true;
    std::vector<GemmData> runs(50, GemmData(problem, TestSeed()));
    RunConcurrently(Pointers(runs));
    for (const GemmData& run : runs) EXPECT_EQ(run.result(), runs.front().result());
  }
}

// Whoever comes last adds up the parts of a tile, but always in the same order.
TEST_P(LaneConformance, GivesTheSameBitsTwoHundredTimesOnAllLanesAtOnce) {
  const DType type = backend().traits().kind == DeviceKind::kCpu ? DType::kF32 : DType::kBF16;
  const Transposes ops = {Op::kN, Op::kT};
  for (const auto& [m, n, k] : {std::array{64, 1024, 4096}, {130, 130, 8192}, {700, 900, 200}}) {
    const GemmProblem problem = MakeProblem({type, type}, ops, m, n, k);
    SCOPED_TRACE(ToString(problem) + " on " + ToString(*planner().PlanFor(problem)));
    const GemmData once(problem, TestSeed());
    std::vector<GemmData> copies(kSuiteLanes, once);
    const std::vector<GemmData*> work = Pointers(copies);
    std::vector<std::byte> first;
    for (int run = 0; run < 200 / kSuiteLanes; ++run) {
      for (GemmData& data : copies) data.PoisonResult(std::byte{0xff});
      RunConcurrently(work);
      if (first.empty()) {
        first = copies[0].result();
        EXPECT_TRUE(CompareWithReference(problem, copies[0].operands()).ok);
      }
      for (const GemmData& data : copies) ASSERT_EQ(data.result(), first) << "run " << run;
    }
  }
}

TEST_P(LaneConformance, LeasesEachLaneOnceAndTellsWhenOneIsFree) {
  // Of its own: the listener is set once in a backend's life.
  StatusOr<BackendSet> set =
      MakeBackends({.choice = GetParam(), .devices = {}, .lanes = 3, .self_check = false});
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  Backend& small = *set->backends.front();
  std::atomic<int> releases = 0;
  small.SetReleaseListener([&] { ++releases; });
  const GemmProblem problem = MakeProblem(kSingle, kNN, 4, 4, 4);

  std::vector<LaneLease> leases;
  std::vector<bool> seen(3);
  for (int i = 0; i < 3; ++i) {
    std::optional<LaneLease> lease = small.TryAcquireLane(problem);
    ASSERT_TRUE(lease);
    const int index = (*lease)->index();
    ASSERT_GE(index, 0);
    ASSERT_LT(index, 3);
    EXPECT_FALSE(seen[static_cast<size_t>(index)]) << "lane " << index << " was leased twice";
    seen[static_cast<size_t>(index)] = true;
    leases.push_back(*std::move(lease));
    EXPECT_EQ(small.usage().lanes_in_use, i + 1);
  }
  EXPECT_FALSE(small.TryAcquireLane(problem));
  EXPECT_EQ(releases, 0);
  leases.pop_back();
  EXPECT_EQ(releases, 1);
  EXPECT_TRUE(small.TryAcquireLane(problem));
  leases.clear();
  EXPECT_EQ(releases, 4);
  EXPECT_EQ(small.usage().lanes_in_use, 0);
  EXPECT_EQ(small.usage().lanes, 3);
}

TEST_P(LaneConformance, RefusesWhatCanNeverFitBeforeAllocatingAnything) {
  // 2^60 bytes of A: valid by itself, beyond every memory.
  const GemmProblem problem = MakeProblem(kSingle, kNN, int64_t{1} << 29, 4, int64_t{1} << 29);
  ASSERT_TRUE(ValidateProblem(problem).ok());
  const Status status = backend().CheckFits(problem);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("11529215"), std::string::npos) << status.message();
  Check(MakeProblem(kSingle, kNN, 16, 16, 16), TestSeed());
}

TEST_P(LaneConformance, ReportsHealthTimesAndUsage) {
  GemmData data(MakeProblem(kSingle, kNN, 200, 200, 200), TestSeed());
  const LaneResult result = Run(data);
  ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  EXPECT_GT(result.times.kernel.count(), 0);
  EXPECT_TRUE(backend().healthy());
  EXPECT_EQ(backend().usage().lanes, kSuiteLanes);
  EXPECT_EQ(backend().usage().lanes_in_use, 0);
  EXPECT_LE(backend().usage().device_pool_used_bytes, backend().usage().device_pool_bytes);
}

// Hours of work in a few bytes: one product for all of a large batch.
TEST_P(LaneConformance, StopsABatchOfProductsWhenAskedTo) {
  if (GetParam() != BackendChoice::kCpu) GTEST_SKIP() << "only a CPU's lanes can stop";
  for (const TypePair types : {kSingle, kDouble, kHalfTypes[0], kInt8}) {
    SCOPED_TRACE(Name(types));
    GemmProblem problem = MakeProblem(types, kNN, 1, 1, 100'000);
    problem.batch = 20'000'000;
    problem.a.batch_stride = problem.b.batch_stride = 0;
    GemmData data(problem, TestSeed());
    std::stop_source stop;
    std::thread stopper([&] { stop.request_stop(); });  // before it runs, or while it does
    const LaneResult result = Run(problem, data.operands(), {}, stop.get_token());
    stopper.join();
    EXPECT_EQ(result.status.code(), StatusCode::kCancelled) << result.status.ToString();
    EXPECT_LT(result.times.kernel, std::chrono::seconds(10));
    EXPECT_TRUE(data.GuardsIntact());
  }
  Check(MakeProblem(kSingle, kNN, 16, 16, 16), TestSeed());
}

TEST_P(LaneConformance, StopsAProductBetweenItsPanelsWhenAskedTo) {
  if (GetParam() != BackendChoice::kCpu) GTEST_SKIP() << "only a CPU's lanes can stop";
  for (const TypePair types : {kSingle, kHalfTypes[0]}) {
    SCOPED_TRACE(Name(types));
    GemmData data(MakeProblem(types, kNN, 2048, 4096, 4096), TestSeed());
    const LaneResult whole = Run(data);
    ASSERT_TRUE(whole.status.ok()) << whole.status.ToString();
    data.PoisonResult(std::byte{0xff});
    std::stop_source stop;
    std::thread stopper([&, at = std::chrono::steady_clock::now() + whole.times.kernel / 4] {
      while (std::chrono::steady_clock::now() < at) std::this_thread::yield();
      stop.request_stop();
    });
    const LaneResult result = Run(data.problem(), data.operands(), {}, stop.get_token());
    stopper.join();
    EXPECT_EQ(result.status.code(), StatusCode::kCancelled) << result.status.ToString();
    EXPECT_TRUE(std::isnan(data.ResultAt(int64_t{2048} * 4096 - 1))) << "the last panel was run";
  }
}

// More than 2^31 elements of D, and batch strides past 2^31: either right at the far corners, or
// refused with the limit.
TEST_P(LaneConformance, AddressesBeyond32BitsOrSaysThatItCannot) {
  if (GetParam() == BackendChoice::kCpu && std::getenv("GEMMD_TEST_LARGE") == nullptr) {
    GTEST_SKIP() << "takes 5 GB of memory and many seconds of a CPU; set GEMMD_TEST_LARGE=1";
  }
  StatusOr<BackendSet> roomy = MakeBackends({.choice = GetParam(),
                                             .devices = {},
                                             .lanes = 1,
                                             .device_pool_bytes = int64_t{12} << 30,
                                             .pinned_pool_bytes = int64_t{6} << 30,
                                             .self_check = false});
  ASSERT_TRUE(roomy.ok()) << roomy.status().ToString();
  Use(std::move(roomy->backends.front()));
  GemmProblem square = MakeProblem(kHalfTypes[0], kNN, 46349, 46351, 1);
  GemmProblem batched = MakeProblem(kHalfTypes[0], kNN, 512, 512, 1);
  batched.batch = 8209;
  batched = WithPackedLayouts(batched);
  for (const GemmProblem& problem : {square, batched}) {
    SCOPED_TRACE(ToString(problem));
    if (const Status fits = backend().CheckFits(problem); !fits.ok()) {
      EXPECT_EQ(fits.code(), StatusCode::kResourceExhausted) << fits.ToString();
      continue;
    }
    GemmData data(problem, TestSeed());
    const LaneResult result = Run(data);
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    const int64_t size = problem.m * problem.n, last = problem.batch - 1;
    const HostOperands operands = data.operands();
    const auto expected = [&](int64_t index, int64_t i, int64_t j) {
      const double a = LoadElement(operands.a, problem.type_a, index * problem.a.batch_stride + i);
      const double b = LoadElement(operands.b, problem.type_b, index * problem.b.batch_stride + j);
      std::byte rounded[2];
      StoreElement(rounded, problem.type_d, 0, a * b);
      return LoadElement(rounded, problem.type_d, 0);
    };
    const int64_t far = (int64_t{1} << 31) + 1;
    for (const int64_t element : {int64_t{0}, far - 2, far - 1, far, last * size + size - 1}) {
      const int64_t index = element / size, i = element % size / problem.n;
      EXPECT_EQ(data.ResultAt(element), expected(index, i, element % problem.n)) << element;
    }
  }
}

}  // namespace gemmd
