#include "kernels/plan/planner.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/plan/gemv_shape.h"
#include "tests/support/problems.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

Planner H200() { return Planner(H200Traits()); }

TEST(KernelConfigTest, SharedMemoryIsStagesTimesPanelsAndNeverBelowTheEpiloguesNeed) {
  const KernelConfig& c = kKernelTable[RowByName("cp_async_128x128x64")].config;
  EXPECT_EQ(StageBytes(c), (128 + 128) * 64 * 2);
  EXPECT_EQ(SmemBytes(c, 5), 5 * 32768);
  const KernelConfig& wide = kKernelTable[RowByName("cp_async_128x256x32")].config;
  EXPECT_EQ(StageBytes(wide), 24576);
  EXPECT_EQ(EpilogueBytes(wide), 8 * 16 * (64 + 8) * 4);
  EXPECT_EQ(SmemBytes(wide, 1), EpilogueBytes(wide));
  EXPECT_EQ(SmemBytes(wide, 2), 2 * 24576);
}

TEST(KernelTableTest, NamesAreUniqueAndFound) {
  for (int row = 0; row < kKernelRows; ++row) {
    EXPECT_EQ(RowByName(kKernelTable[row].name), row) << kKernelTable[row].name;
  }
  EXPECT_EQ(RowByName("no such kernel"), -1);
}

TEST(ResidentBlocksTest, IsTheLeastOfSharedMemoryRegistersAndThreads) {
  const KernelConfig& c = kKernelTable[RowByName("cp_async_128x128x64")].config;
  const DeviceTraits h200 = H200Traits();
  EXPECT_EQ(ResidentBlocks(c, 1, h200), 2) << "252 registers of 128 threads: two blocks";
  EXPECT_EQ(ResidentBlocks(c, 3, h200), 2) << "2 * (98304 + 1024) <= 233472";
  EXPECT_EQ(ResidentBlocks(c, 4, h200), 1) << "2 * (131072 + 1024) > 233472";
  EXPECT_EQ(ResidentBlocks(c, 7, h200), 1) << "229376 <= 232448";
  EXPECT_EQ(ResidentBlocks(c, 8, h200), 0) << "262144 > 232448";
}

TEST(ResidentBlocksTest, AWarpsRegistersLieInOneOfTheFourPartsOfAnSm) {
  const KernelConfig& c = kKernelTable[RowByName("cp_async_32x32x32")].config;
  EXPECT_EQ(ResidentBlocks(c, 1, H200Traits()), 24)
      << "16384 / (80 * 32) = 6.4 warps a part, though 65536 / (80 * 32) = 25.6";
}

TEST(PlannerTest, EveryCandidateFitsTheDevice) {
  const Planner planner = H200();
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (const int64_t extent : {1, 63, 128, 1000, 4096, 100000}) {
      const GemmProblem p = Problem(extent, 4096, extent, type);
      const std::vector<Plan> plans = planner.Candidates(p);
      ASSERT_FALSE(plans.empty());
      for (const Plan& plan : plans) {
        EXPECT_GE(plan.resident_blocks, 1) << ToString(plan);
        EXPECT_LE(plan.smem_bytes, H200Traits().smem_per_block_bytes) << ToString(plan);
        EXPECT_GT(plan.predicted_seconds, 0) << ToString(plan);
        EXPECT_TRUE(TakesTypes(kKernelTable[plan.row].config, p, H200Traits())) << ToString(plan);
      }
    }
  }
}

TEST(PlannerTest, PicksTheFirstOfItsCandidates) {
  const Planner planner = H200();
  for (const int64_t k : {16, 100, 1000, 16384}) {
    const GemmProblem p = Problem(3001, 5003, k);
    const StatusOr<Plan> plan = planner.PlanFor(p);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const Plan first = planner.Candidates(p).front();
    EXPECT_EQ(plan->row, first.row);
    EXPECT_EQ(plan->stages, first.stages);
  }
}

TEST(PlannerTest, NoCandidateIsFasterThanThePick) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const Planner planner = H200();
  const auto extent = [&] {
    return int64_t{1} << std::uniform_int_distribution<int>(0, 14)(random);
  };
  for (int i = 0; i < 300; ++i) {
    const GemmProblem p = Problem(extent() + 1, extent() + 1, extent() + 1);
    const StatusOr<Plan> plan = planner.PlanFor(p);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const Plan first = planner.Candidates(p).front();
    EXPECT_EQ(plan->predicted_seconds, first.predicted_seconds)
        << ToString(p) << ": " << ToString(*plan) << " against " << ToString(first);
  }
}

TEST(PlannerTest, NeverPicksMoreStagesThanABlockHasKTiles) {
  const Planner planner = H200();
  for (int64_t k = 1; k <= 640; k += 13) {
    const StatusOr<Plan> plan = planner.PlanFor(Problem(128, 128, k));
    ASSERT_TRUE(plan.ok());
    EXPECT_LE(plan->stages, CeilDiv(k, kKernelTable[plan->row].config.block_k)) << "k=" << k;
  }
}

TEST(PlannerTest, FewTilesWithALongKAreCutIntoPartsThatFillTheDevice) {
  const Planner planner = H200();
  for (const auto& [m, n, k] : {std::array{128, 128, 65536}, {512, 512, 32768}, {64, 1024, 8192}}) {
    const StatusOr<Plan> plan = planner.PlanFor(Problem(m, n, k));
    ASSERT_TRUE(plan.ok());
    EXPECT_GT(plan->split_k, 1) << ToString(*plan);
  }
  const StatusOr<Plan> full = planner.PlanFor(Problem(12 * 128, 11 * 256, 8192));
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->split_k, 1) << ToString(*full) << ": 132 tiles are one for each SM";
}

TEST(PlannerTest, ADeviceWithoutClustersPlansWithoutThem) {
  DeviceTraits traits = H200Traits();
  traits.resident_pairs = 0;
  const Planner planner(traits);
  for (const auto& [m, n, k] : {std::array{128, 128, 65536}, {64, 1024, 8192}, {4096, 4096, 64}}) {
    const std::vector<Plan> plans = planner.Candidates(Problem(m, n, k));
    EXPECT_FALSE(plans.empty());
    for (const Plan& plan : plans) EXPECT_FALSE(plan.pair) << ToString(plan);
  }
}

TEST(PlannerTest, AForcedSplitIsMetOrRefusedWithItsLimit) {
  const Planner planner = H200();
  const GemmProblem p = Problem(64, 64, 6400);
  const StatusOr<Plan> plan =
      planner.PlanFor(p, {.row = RowByName("tma_wgmma_64x64x128"), .stages = {}, .split_k = 7});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->split_k, 7);
  const Status status = planner.PlanFor(p, {.row = {}, .stages = {}, .split_k = 101}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "plan.split_k");
  EXPECT_THAT(status.message(), HasSubstr("plan.split_k=101 is not from 1 to the limit 100"));
  EXPECT_EQ(planner.PlanFor(p, {.row = {}, .stages = {}, .split_k = 0}).status().field(),
            "plan.split_k");
  // 40 MiB of workspace are too few for two parts of these.
  const PlanConstraints cannot = {
      .row = RowByName("tma_wgmma_128x256x64"), .stages = 1, .split_k = 2};
  const Status both = planner.PlanFor(Problem(8192, 8192, 8192), cannot).status();
  EXPECT_EQ(both.field(), "plan.split_k");
  EXPECT_THAT(both.message(),
              HasSubstr("plan.split_k=2 is not from 1 to the limit 1 of tma_wgmma_128x256x64 at 1 "
                        "stages"));
}

TEST(PlannerTest, KernelsThatDoNotFitADeviceTakeNoParts) {
  DeviceTraits traits = H200Traits();
  traits.smem_per_block_bytes = 100 << 10;  // less than any TMA kernel asks for
  const Status status = Planner(traits)
                            .PlanFor(Problem(64, 64, 6400), {.row = {}, .stages = {}, .split_k = 2})
                            .status();
  EXPECT_EQ(status.field(), "plan.split_k");
  EXPECT_THAT(status.message(), HasSubstr("plan.split_k=2 is not from 1 to the limit 1"));
}

TEST(PlannerTest, AKernelThatCannotRunIsRefusedByItsOwnName) {
  const PlanConstraints epilogue = {
      .row = RowOfFamily(Family::kEpilogueOnly), .stages = {}, .split_k = {}};
  const Status product = H200().PlanFor(Problem(100, 100, 100), epilogue).status();
  EXPECT_EQ(product.field(), "plan.kernel");
  EXPECT_THAT(product.message(),
              HasSubstr("epilogue_only takes products with alpha=0 or k=0 alone"));
  DeviceTraits small = H200Traits();
  small.smem_per_block_bytes = 100 << 10;
  const PlanConstraints large = {
      .row = RowByName("tma_wgmma_128x256x64"), .stages = {}, .split_k = {}};
  const Status fits = Planner(small).PlanFor(Problem(100, 100, 100), large).status();
  EXPECT_EQ(fits.field(), "plan.kernel");
  EXPECT_THAT(fits.message(), HasSubstr("tma_wgmma_128x256x64 does not fit"));
  EXPECT_THAT(fits.message(), HasSubstr("102400 bytes a block"));
}

TEST(PlannerTest, LongKTakesMoreThanOneStageAndASmallTileForFewRows) {
  const Planner planner = H200();
  const StatusOr<Plan> large = planner.PlanFor(Problem(4096, 4096, 4096));
  ASSERT_TRUE(large.ok());
  EXPECT_GE(large->stages, 2);
  const StatusOr<Plan> small = planner.PlanFor(Problem(64, 64, 4096));
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(kKernelTable[small->row].config.block_m, 64) << ToString(*small);
}

TEST(PlannerTest, TheTmaKernelsAreForComputeCapability90Alone) {
  for (const int capability : {80, 86, 89, 100, 120}) {
    DeviceTraits traits = H200Traits();
    traits.compute_capability = capability;
    for (const Plan& plan : Planner(traits).Candidates(Problem(4096, 4096, 4096))) {
      EXPECT_EQ(kKernelTable[plan.row].config.family, Family::kCpAsyncMma) << capability;
    }
  }
  const StatusOr<Plan> plan = H200().PlanFor(Problem(4096, 4096, 4096));
  EXPECT_EQ(kKernelTable[plan->row].config.family, Family::kTmaWgmma);
}

TEST(PlannerTest, ABatchOfTinyProductsTakesTheTileOfOneWarp) {
  GemmProblem p = Problem(16, 16, 16, DType::kBF16);
  p.batch = 4096;
  p = WithPackedLayouts(p);
  EXPECT_EQ(H200().PlanFor(p)->kernel(), "cp_async_32x32x32");
}

// Measured on an H200 (7 x 3096 x 64, TT): 64 columns a block 5.17 us, 128 columns 3.40 us.
TEST(PlannerTest, FewerBlocksAskForANarrowOperand) {
  GemmProblem p = Problem(7, 3096, 64, DType::kBF16);
  p.op_a = p.op_b = Op::kT;
  p = WithPackedLayouts(p);
  const auto seconds = [&](const char* kernel) {
    return H200()
        .PlanFor(p, {.row = RowByName(kernel), .stages = {}, .split_k = {}})
        ->predicted_seconds;
  };
  EXPECT_GT(seconds("tma_wgmma_64x64x128"), 1.2 * seconds("tma_wgmma_64x128x64"));
}

// Each figure moves the plans of its own kind of kernel, and of no other.
TEST(PlannerTest, CalibrationMovesThePredictionsOfItsOwnKernels) {
  const GemmProblem p = Problem(4096, 4096, 4096);
  const int tma = RowByName("tma_wgmma_128x128x64"), cp_async = RowByName("cp_async_128x128x64");
  const auto seconds = [&](const DeviceTraits& traits, int row, int stages) {
    return Planner(traits)
        .PlanFor(p, {.row = row, .stages = stages, .split_k = 1})
        ->predicted_seconds;
  };
  const DeviceTraits h200 = H200Traits();
  const auto expect_slower = [&](const DeviceTraits& traits, int row, int stages, int other) {
    EXPECT_GT(seconds(traits, row, stages), 1.2 * seconds(h200, row, stages));
    EXPECT_EQ(seconds(traits, other, 2), seconds(h200, other, 2));
  };
  DeviceTraits traits = h200;
  traits.calibration.tma->latency_clocks *= 3;
  expect_slower(traits, tma, 1, cp_async);
  traits = h200;
  traits.calibration.tma->bytes_per_clock /= 3;
  expect_slower(traits, tma, 6, cp_async);
  traits = h200;
  traits.calibration.tma->flops_per_clock /= 3;
  expect_slower(traits, tma, 6, cp_async);
  traits = h200;
  traits.calibration.cp_async.latency_clocks *= 3;
  expect_slower(traits, cp_async, 1, tma);
  traits = h200;
  traits.calibration.cp_async.flops_per_clock /= 3;
  expect_slower(traits, cp_async, 3, tma);
}

TEST(PlannerTest, StagesBuyMoreWhereTheLatencyIsLonger) {
  const auto gain = [](double factor) {
    DeviceTraits traits = H200Traits();
    traits.calibration.tma->latency_clocks *= factor;
    const auto seconds = [&](int stages) {
      return Planner(traits)
          .PlanFor(Problem(4096, 4096, 4096),
                   {.row = RowByName("tma_wgmma_64x64x128"), .stages = stages, .split_k = 1})
          ->predicted_seconds;
    };
    return seconds(2) / seconds(6);
  };
  EXPECT_LT(gain(0.25), 1.05);
  EXPECT_GT(gain(4), 2);
}

TEST(PlannerTest, OneKTileIsLimitedByKTiles) {
  const StatusOr<Plan> plan = H200().PlanFor(Problem(100, 100, 16));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->stages, 1);
  EXPECT_EQ(plan->limit, StageLimit::kKTiles);
}

TEST(PlannerTest, ForcedStagesAreTakenAndSaidToBeForced) {
  const StatusOr<Plan> plan =
      H200().PlanFor(Problem(1000, 1000, 100),
                     {.row = RowByName("cp_async_64x64x64"), .stages = 7, .split_k = {}});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->stages, 7) << "more than the two K tiles there are";
  EXPECT_EQ(plan->source, PlanSource::kForced);
  EXPECT_EQ(plan->limit, StageLimit::kForced);
}

TEST(PlannerTest, RefusesWhatCannotRunWithFieldValueAndLimit) {
  const Planner planner = H200();
  const GemmProblem p = Problem(1000, 1000, 1000);
  const auto refusal = [&](PlanConstraints constraints) {
    const StatusOr<Plan> plan = planner.PlanFor(p, constraints);
    EXPECT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    return plan.status();
  };
  Status status = refusal({.row = RowByName("cp_async_128x128x64"), .stages = 8, .split_k = {}});
  EXPECT_EQ(status.field(), "plan.stages");
  EXPECT_THAT(status.message(), HasSubstr("plan.stages=8 exceeds the limit 7"));
  EXPECT_EQ(refusal({.row = {}, .stages = 0, .split_k = {}}).field(), "plan.stages");
  status = refusal({.row = RowByName("simt_64x64x16"), .stages = {}, .split_k = {}});
  EXPECT_EQ(status.field(), "plan.kernel");
  EXPECT_THAT(status.message(), HasSubstr("simt_64x64x16"));
  status = refusal({.row = RowByName("cp_async_128x128x64"), .stages = {}, .split_k = 2});
  EXPECT_EQ(status.field(), "plan.split_k");
  EXPECT_THAT(status.message(), HasSubstr("plan.split_k=2 is not from 1 to the limit 1"));
}

TEST(PlannerTest, ADeviceWithLessSharedMemoryGetsFewerStages) {
  DeviceTraits small = H200Traits();
  small.compute_capability = 86;
  small.smem_per_block_bytes = 101376;
  small.smem_per_sm_bytes = 102400;
  const Planner planner(small);
  for (const Plan& plan : planner.Candidates(Problem(4096, 4096, 4096))) {
    EXPECT_LE(plan.smem_bytes, 101376) << ToString(plan);
  }
  const StatusOr<Plan> plan =
      planner.PlanFor(Problem(4096, 4096, 4096),
                      {.row = RowByName("cp_async_128x128x64"), .stages = 4, .split_k = {}});
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(plan.status().message(), HasSubstr("limit 3"));
}

TEST(PlannerTest, OneOrTwoVectorsAreMultipliedByTheGemvKernelWithoutARing) {
  const Planner planner = H200();
  for (const auto& [m, n] : {std::array{1, 4096}, {2, 4096}, {4096, 1}}) {
    for (const Op op : {Op::kN, Op::kT}) {
      GemmProblem p = Problem(m, n, 4096);
      (m < n ? p.op_b : p.op_a) = op;
      const StatusOr<Plan> plan = planner.PlanFor(WithPackedLayouts(p));
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      EXPECT_EQ(plan->kernel(), "gemv") << ToString(p);
      EXPECT_EQ(plan->stages, 0);
      EXPECT_EQ(plan->split_k, 1);
      EXPECT_EQ(plan->resident_blocks, m < n && op == Op::kT ? 2 : 1);
      EXPECT_FALSE(plan->pair);
      EXPECT_FALSE(plan->early_start);
      EXPECT_EQ(plan->limit, StageLimit::kNone);
    }
  }
}

TEST(PlannerTest, TheGemvKernelIsForFewRowsOrColumnsOfSixteenBits) {
  const auto offered = [](const GemmProblem& p, const DeviceTraits& traits) {
    const std::vector<Plan> plans = Planner(traits).Candidates(p);
    return std::ranges::any_of(plans, [](const Plan& plan) { return plan.kernel() == "gemv"; });
  };
  DeviceTraits traits = H200Traits();
  for (const int capability : {80, 90, 100}) {
    traits.compute_capability = capability;
    EXPECT_TRUE(offered(Problem(4, 5, 100, DType::kF16), traits));
    EXPECT_TRUE(offered(Problem(5, 4, 100), traits));
    EXPECT_TRUE(offered(Problem(1, 1, 1), traits));
    EXPECT_FALSE(offered(Problem(5, 5, 100), traits));
    EXPECT_FALSE(offered(Problem(1, 100, 100, DType::kF32), traits));
  }
}

TEST(PlannerTest, TheGemvKernelIsRefusedWhereItCannotRun) {
  const Planner planner = H200();
  const int gemv = RowByName("gemv");
  Status status =
      planner.PlanFor(Problem(5, 5, 100), {.row = gemv, .stages = {}, .split_k = {}}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "plan.kernel");
  EXPECT_THAT(status.message(), HasSubstr("plan.kernel=gemv does not take"));
  const GemmProblem p = Problem(1, 100, 100);
  status = planner.PlanFor(p, {.row = gemv, .stages = 1, .split_k = {}}).status();
  EXPECT_EQ(status.field(), "plan.stages");
  EXPECT_THAT(status.message(), HasSubstr("plan.stages=1 exceeds the limit 0 of gemv"));
  status = planner.PlanFor(p, {.row = gemv, .stages = {}, .split_k = 2}).status();
  EXPECT_EQ(status.field(), "plan.split_k");
  EXPECT_THAT(status.message(), HasSubstr("plan.split_k=2 is not from 1 to the limit 1 of gemv"));
  const StatusOr<Plan> forced = planner.PlanFor(p, {.row = gemv, .stages = {}, .split_k = 1});
  ASSERT_TRUE(forced.ok()) << forced.status().ToString();
  EXPECT_EQ(forced->source, PlanSource::kForced);
  EXPECT_EQ(forced->limit, StageLimit::kNone);
  const StatusOr<Plan> ring = planner.PlanFor(p, {.row = {}, .stages = 2, .split_k = {}});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  EXPECT_EQ(ring->stages, 2) << "by a kernel that has a ring";
}

TEST(GemvShapeTest, BlocksGetFewerLinesUntilAllSmsHaveOne) {
  GemmProblem p = Problem(1, 100000, 64);
  p.op_b = Op::kT;
  EXPECT_EQ(GemvShapeOf(p, 132).lines_of_block(), 32);
  p.n = 4096;
  EXPECT_EQ(GemvShapeOf(p, 132).lines_of_block(), 16);
  EXPECT_EQ(GemvShapeOf(p, 132).blocks(), 256);
  p.batch = 4;
  EXPECT_EQ(GemvShapeOf(p, 132).lines_of_block(), 32);
  p.batch = 1, p.n = 10;
  EXPECT_EQ(GemvShapeOf(p, 132).blocks(), 5) << "two lines is the least";
  p.op_b = Op::kN;
  EXPECT_EQ(GemvShapeOf(p, 132).lines_of_block(), 32);
  p.n = 100000;
  EXPECT_EQ(GemvShapeOf(p, 132).lines_of_block(), 64);
}

TEST(PlannerTest, AProblemWithoutAProductRunsTheEpilogueAlone) {
  GemmProblem p = Problem(100, 100, 0);
  p.beta = 2.0;
  StatusOr<Plan> plan = H200().PlanFor(p);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->kernel(), "epilogue_only");
  EXPECT_EQ(plan->stages, 0);
  p = Problem(100, 100, 100);
  p.alpha = 0.0;
  plan = H200().PlanFor(p);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->kernel(), "epilogue_only");
}

TEST(PlannerTest, AnEmptyProductLaunchesNothing) {
  const StatusOr<Plan> plan = H200().PlanFor(Problem(0, 100, 100));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->row, -1);
  EXPECT_EQ(plan->kernel(), "none");
}

TEST(PlannerTest, TypesWithoutAKernelAreUnimplementedAndNamed) {
  GemmProblem p = Problem(10, 10, 10, DType::kF64);
  EXPECT_EQ(H200().PlanFor(p).status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(H200().PlanFor(p).status().message(), HasSubstr("f64"));
  p = Problem(10, 10, 10, DType::kF32);
  p.mode = ComputeMode::kTf32;
  EXPECT_EQ(H200().PlanFor(p).status().code(), StatusCode::kUnimplemented);
  p = Problem(10, 10, 10, DType::kF8E4M3);
  p.type_d = DType::kBF16;
  EXPECT_EQ(Planner(CpuTraits()).PlanFor(p).status().code(), StatusCode::kUnimplemented);
}

TEST(PlannerTest, ACpuTakesItsBlasForEveryTypeItHas) {
  const Planner planner(CpuTraits());
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const StatusOr<Plan> plan = planner.PlanFor(Problem(10, 10, 10, type));
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->kernel(), "openblas");
  }
  const StatusOr<Plan> forced =
      planner.PlanFor(Problem(10, 10, 10), {.row = {}, .stages = 3, .split_k = {}});
  EXPECT_EQ(forced.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(forced.status().field(), "plan.stages");
}

}  // namespace
}  // namespace gemmd
