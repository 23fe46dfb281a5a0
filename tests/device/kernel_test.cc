// Kernels launched directly: what the compiler and the driver made of them, and the pipeline's
// rules.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/core/numeric.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_image.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/image_params.h"
#include "kernels/plan/planner.h"
#include "kernels/plan/stall_record.h"
#include "tests/device/device_fixture.h"

namespace gemmd {
namespace {

constexpr Op kOps[] = {Op::kN, Op::kT};

class KernelTest : public DeviceTest {
 protected:
  // Runs `plan` on random operands of `seed` with D poisoned; returns D's bytes and the
  // counts of StallSample.
  void Run(const GemmProblem& p, const Plan& plan, uint64_t seed, std::vector<std::byte>& d,
           std::vector<uint64_t>& counters) {
    const DeviceImage image = *ImageOf(p);
    std::vector<std::byte> host(static_cast<size_t>(image.bytes), std::byte{0xff});
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](const ImageMatrix& m, const MatrixLayout& layout) {  // padding stays NaN
      for (int64_t row = 0; row < m.matrices * layout.rows; ++row) {
        for (int64_t col = 0; col < layout.cols; ++col) {
          StoreElement(host.data() + m.offset, p.type_a, row * m.ld + col, normal(random));
        }
      }
    };
    fill(image.a, p.a);
    fill(image.b, p.b);
    std::fill_n(host.begin() + image.counters_offset, kStallBytes, std::byte{0});
    DeviceBuffer memory = *MakeDeviceBuffer(image.bytes);
    auto* base = static_cast<std::byte*>(memory.get());
    ASSERT_EQ(cudaMemcpy(base, host.data(), host.size(), cudaMemcpyHostToDevice), cudaSuccess);
    GemmParams params;
    params.a = base + image.a.offset, params.lda = image.a.ld;
    params.b = base + image.b.offset, params.ldb = image.b.ld;
    params.d = base + image.d.offset, params.ldd = image.d.ld;
    params.stride_a = image.a.batch_stride, params.stride_b = image.b.batch_stride;
    params.stride_d = image.d.batch_stride;
    params.counters = reinterpret_cast<unsigned long long*>(base + image.counters_offset);
    const DeviceBuffer workspace = *MakeDeviceBuffer(kWorkspaceBytes);
    params.workspace = workspace.get();
    const Status launched = Launch(p, plan, params, nullptr);
    ASSERT_TRUE(launched.ok()) << launched.ToString();
    ASSERT_EQ(cudaMemcpy(host.data(), base, host.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    d.resize(static_cast<size_t>(*ResultBytes(p)));
    ReadResult(p, image, host.data(), {nullptr, nullptr, nullptr, nullptr, d.data()});
    const StallSample stalls = ReadCounters(host.data() + image.counters_offset);
    counters = {stalls.wait_full, stalls.wait_empty, stalls.mainloop, stalls.epilogue,
                stalls.k_tiles};
  }

  template <typename Visit>  // (row, type, op_a, op_b) of every instance
  void ForEachInstance(Visit visit) {
    for (int row = 0; row < kKernelRows; ++row) {
      for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
        for (const Op op_a : kOps) {
          for (const Op op_b : kOps) {
            if (KernelAttributes(row, type, op_a, op_b).ok()) visit(row, type, op_a, op_b);
          }
        }
      }
    }
  }
};

GemmProblem Problem(int64_t m, int64_t n, int64_t k, DType type, int64_t batch = 1) {
  GemmProblem p;
  p.m = m, p.n = n, p.k = k, p.batch = batch;
  p.type_a = p.type_b = p.type_d = type;
  return WithPackedLayouts(p);
}

TEST_F(KernelTest, NoInstanceSpillsOrUsesMoreRegistersThanThePlannerCounts) {
  int instances = 0;
  ForEachInstance([&](int row, DType type, Op op_a, Op op_b) {
    const KernelConfig& config = kKernelTable[row].config;
    const cudaFuncAttributes attributes = *KernelAttributes(row, type, op_a, op_b);
    EXPECT_EQ(attributes.localSizeBytes, 0U) << kKernelTable[row].name << " " << Name(type);
    if (config.max_stages > 0) {
      EXPECT_LE(attributes.numRegs, RegistersPerThread(config)) << kKernelTable[row].name;
    }
    ++instances;
  });
  EXPECT_GE(instances, 4 * 8 + 2 * 4 + 8 + 3);
}

TEST_F(KernelTest, ResidentBlocksAgreeWithTheDriverAtEveryStageCount) {
  ForEachInstance([&](int row, DType type, Op op_a, Op op_b) {
    const KernelConfig& config = kKernelTable[row].config;
    for (int stages = 1; stages <= config.max_stages; ++stages) {
      const int expected = ResidentBlocks(config, stages, traits_);
      if (expected == 0) continue;
      const int driver = *DriverResidentBlocks(row, stages, type, op_a, op_b);
      // The planner counts the registers that the residency was asked for; fewer may be used.
      EXPECT_GE(driver, expected) << kKernelTable[row].name << " stages " << stages;
    }
  });
}

TEST_F(KernelTest, BitsDoNotDependOnTheStageCount) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Planner planner(traits_);
  for (int row = 0; row < kKernelRows; ++row) {
    const KernelConfig& config = kKernelTable[row].config;
    if (config.max_stages == 0) continue;
    const DType type = config.family == Family::kCpAsyncSimt ? DType::kF32 : DType::kBF16;
    const GemmProblem p = Problem(301, 203, 17 * config.block_k + 5, type, 3);
    std::vector<std::byte> first, d;
    std::vector<uint64_t> counters;
    for (int stages = 1; stages <= config.max_stages; ++stages) {
      const StatusOr<Plan> plan = planner.PlanFor(p, {.row = row, .stages = stages, .split_k = 1});
      if (!plan.ok()) break;
      Run(p, *plan, seed, d, counters);
      if (stages == 1) first = d;
      EXPECT_EQ(d, first) << kKernelTable[row].name << " stages " << stages;
    }
  }
}

TEST_F(KernelTest, VectorProductsRepeatTheirBitsAndNeverUseThePaddingOfARow) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Planner planner(traits_);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const Op op_a : kOps) {
      for (const Op op_b : kOps) {
        for (const bool few_rows : {false, true}) {
          GemmProblem p = Problem(few_rows ? 3 : 517, few_rows ? 517 : 3, 4099, type, 2);
          p.op_a = op_a, p.op_b = op_b;
          p = WithPackedLayouts(p);
          const StatusOr<Plan> plan =
              planner.PlanFor(p, {.row = RowOfFamily(Family::kGemv), .stages = {}, .split_k = {}});
          ASSERT_TRUE(plan.ok()) << plan.status().ToString();
          std::vector<std::byte> first, second;
          std::vector<uint64_t> counters;
          Run(p, *plan, seed, first, counters);
          Run(p, *plan, seed, second, counters);
          EXPECT_EQ(first, second) << ToString(p);
          for (int64_t i = 0; i < p.m * p.n * p.batch; ++i) {
            ASSERT_TRUE(std::isfinite(LoadElement(first.data(), type, i))) << ToString(p);
          }
        }
      }
    }
  }
}

// A kernel may start while the one before it on the stream still runs, and must wait for its end.
TEST_F(KernelTest, ALaunchReadsWhatTheOneBeforeItWrote) {
  constexpr int kExtent = 512, kLaunches = 64;
  const GemmProblem p = Problem(kExtent, kExtent, kExtent, DType::kBF16);
  constexpr int64_t kBytes = int64_t{kExtent} * kExtent * 2;
  std::vector<std::byte> start(kBytes), shift(kBytes), end(kBytes);
  for (int64_t row = 0; row < kExtent; ++row) {
    for (int64_t col = 0; col < kExtent; ++col) {
      StoreElement(start.data(), p.type_a, row * kExtent + col, (row * 7 + col * 3) % 251);
      StoreElement(shift.data(), p.type_a, row * kExtent + col, (row + 1) % kExtent == col);
    }
  }
  const Planner planner(traits_);
  for (int row = 0; row < kKernelRows; ++row) {
    if (kKernelTable[row].config.family != Family::kTmaWgmma) continue;
    const Plan plan = *planner.PlanFor(p, {.row = row, .stages = {}, .split_k = {}});
    const DeviceBuffer memory = *MakeDeviceBuffer(3 * kBytes);
    std::byte* const base = static_cast<std::byte*>(memory.get());
    std::byte* const turns[] = {base, base + kBytes};
    ASSERT_EQ(cudaMemcpy(base, start.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(base + 2 * kBytes, shift.data(), kBytes, cudaMemcpyHostToDevice),
              cudaSuccess);
    const DeviceBuffer workspace = *MakeDeviceBuffer(kWorkspaceBytes);  // some plans have parts
    GemmParams params;
    params.workspace = workspace.get();
    params.b = base + 2 * kBytes;
    params.lda = params.ldb = params.ldd = kExtent;
    for (int i = 0; i < kLaunches; ++i) {
      params.a = turns[i % 2], params.d = turns[(i + 1) % 2];
      ASSERT_TRUE(Launch(p, plan, params, nullptr).ok());
    }
    ASSERT_EQ(cudaMemcpy(end.data(), base, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    int64_t wrong = 0;
    for (int64_t i = 0; i < kExtent; ++i) {
      for (int64_t j = 0; j < kExtent; ++j) {  // column j came from column j - kLaunches
        const int64_t from = (j - kLaunches + kExtent) % kExtent;
        wrong += LoadElement(end.data(), p.type_a, i * kExtent + j) !=
                 LoadElement(start.data(), p.type_a, i * kExtent + from);
      }
    }
    EXPECT_EQ(wrong, 0) << kKernelTable[row].name;
  }
}

TEST_F(KernelTest, CountersAddUpToTheTilesAndStepsOfTheLaunch) {
  const Planner planner(traits_);
  for (int row = 0; row < kKernelRows; ++row) {
    const KernelConfig& config = kKernelTable[row].config;
    if (config.max_stages == 0) continue;
    const DType type = config.family == Family::kCpAsyncSimt ? DType::kF32 : DType::kF16;
    const GemmProblem p = Problem(300, 500, 1000, type, 2);
    for (const int stages : std::set<int>{1, std::min(3, config.max_stages)}) {
      const std::vector<Plan> plans =
          planner.Candidates(p, {.row = row, .stages = stages, .split_k = 1});
      const auto alone =
          std::find_if(plans.begin(), plans.end(), [](const Plan& plan) { return !plan.pair; });
      ASSERT_NE(alone, plans.end());
      const Plan& plan = *alone;
      std::vector<std::byte> d;
      std::vector<uint64_t> counters;
      Run(p, plan, 1, d, counters);
      const int64_t tiles = CeilDiv(300, config.block_m) * CeilDiv(500, config.block_n) * 2;
      const auto [wait_full, wait_empty, mainloop, epilogue, k_tiles] =
          std::tie(counters[0], counters[1], counters[2], counters[3], counters[4]);
      EXPECT_EQ(k_tiles, static_cast<uint64_t>(tiles * CeilDiv(1000, config.block_k)));
      EXPECT_GT(wait_full, 0U);
      EXPECT_LT(wait_full, mainloop) << kKernelTable[row].name;
      EXPECT_GT(epilogue, 0U);
      if (config.family != Family::kTmaWgmma) {
        EXPECT_EQ(wait_empty > 0, stages == 1)
            << "one barrier carries both edges from two stages on";
      }
    }
  }
}

// Parts, pairs with a tile beyond an odd edge, batches, and steps that the parts share out
// unevenly.
TEST_F(KernelTest, EveryPlanCountsExactlyTheKTilesOfItsLaunch) {
  const Planner planner(traits_);
  int paired = 0, parted = 0;
  for (int row = 0; row < kKernelRows; ++row) {
    const KernelConfig& config = kKernelTable[row].config;
    if (config.max_stages == 0) continue;
    const DType type = config.family == Family::kCpAsyncSimt ? DType::kF32 : DType::kBF16;
    const int stages = std::min(2, config.max_stages);
    for (const GemmProblem& p :
         {Problem(300, 700, 200, type, 3), Problem(70, 130, 2100, type), Problem(1, 1, 1, type)}) {
      for (const Plan& plan :
           planner.Candidates(p, {.row = row, .stages = stages, .split_k = {}})) {
        std::vector<std::byte> d;
        std::vector<uint64_t> counters;
        Run(p, plan, 1, d, counters);
        EXPECT_EQ(counters[4], KTilesOfLaunch(p, plan)) << ToString(p) << ": " << ToString(plan);
        paired += plan.pair;
        parted += plan.split_k > 1;
      }
    }
  }
  if (traits_.compute_capability != 90) return;  // there are neither on any other
  EXPECT_GT(paired, 0);
  EXPECT_GT(parted, 0);
}

TEST(CudaStatusTest, CodesFollowTheKindOfError) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "x").ok());
  EXPECT_EQ(CudaStatus(cudaErrorMemoryAllocation, "x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(CudaStatus(cudaErrorNoKernelImageForDevice, "x").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(CudaStatus(cudaErrorIllegalAddress, "x").code(), StatusCode::kUnavailable);
  EXPECT_EQ(CudaStatus(cudaErrorInvalidValue, "cudaFoo").code(), StatusCode::kInternal);
  EXPECT_EQ(CudaStatus(cudaErrorInvalidValue, "cudaFoo").message().rfind("cudaFoo: ", 0), 0U);
}

TEST(CudaStatusTest, OnlyErrorsThatEndTheContextAreSticky) {
  EXPECT_TRUE(IsSticky(cudaErrorIllegalAddress));
  EXPECT_TRUE(IsSticky(cudaErrorLaunchFailure));
  EXPECT_FALSE(IsSticky(cudaErrorMemoryAllocation));
  EXPECT_FALSE(IsSticky(cudaErrorInvalidValue));
  EXPECT_FALSE(IsSticky(cudaSuccess));
}

}  // namespace
}  // namespace gemmd
