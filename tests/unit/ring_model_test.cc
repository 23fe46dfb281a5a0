#include "kernels/lab/ring_model.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace gemmd::lab {
namespace {

constexpr TileCost kExample = {.load = 500, .compute = 220};

TEST(RingModelTest, UncoveredLatencyShrinksByATilesComputingForEachStage) {
  const std::vector<double> expected = {500, 280, 60, 0, 0, 0, 0, 0};
  for (int stages = 1; stages <= 8; ++stages) {
    EXPECT_EQ(UncoveredClocks(kExample, stages), expected[static_cast<size_t>(stages) - 1])
        << stages;
  }
}

TEST(RingModelTest, ATileTakesItsComputingOrItsShareOfATurn) {
  EXPECT_EQ(ClocksPerTile(kExample, 1), 720);  // L + C
  EXPECT_EQ(ClocksPerTile(kExample, 2), 360);
  EXPECT_EQ(ClocksPerTile(kExample, 3), 240);
  EXPECT_EQ(ClocksPerTile(kExample, 4), 220);  // C: nothing is left to gain
  EXPECT_EQ(ClocksPerTile(kExample, 8), 220);
}

TEST(RingModelTest, AFewTilesPayTheFirstLoadWhateverTheStages) {
  for (const int stages : {1, 2, 4, 8}) {
    EXPECT_EQ(ClocksOfTiles(kExample, stages, 0), 0) << stages;
    EXPECT_EQ(ClocksOfTiles(kExample, stages, 1), 720) << stages;
  }
  EXPECT_EQ(ClocksOfTiles(kExample, 1, 2), 1440);
  EXPECT_EQ(ClocksOfTiles(kExample, 2, 2), 940);        // 500 + 2 * 220
  EXPECT_EQ(ClocksOfTiles(kExample, 2, 3), 720 + 720);  // the third load begins at 720
  EXPECT_EQ(ClocksOfTiles(kExample, 4, 512), 500 + 512 * 220);
}

TEST(RingModelTest, ManyTilesTakeWhatTheLongRunSays) {
  for (int stages = 1; stages <= 8; ++stages) {
    const double each = ClocksOfTiles(kExample, stages, 100000) / 100000;
    EXPECT_NEAR(each, ClocksPerTile(kExample, stages), 0.01) << stages;
  }
}

TEST(RingModelTest, CoveringStagesAreTheLeastThatWaitForNothing) {
  EXPECT_EQ(CoveringStages(kExample), 4);
  EXPECT_EQ(CoveringStages({.load = 440, .compute = 220}), 3);
  EXPECT_EQ(CoveringStages({.load = 441, .compute = 220}), 4);
  EXPECT_EQ(CoveringStages({.load = 2.1, .compute = 0.7}), 4);
  EXPECT_EQ(CoveringStages({.load = 0, .compute = 220}), 1);
  EXPECT_EQ(CoveringStages({.load = 1, .compute = 0}), std::numeric_limits<int>::max());
  EXPECT_EQ(CoveringStages({.load = 1e300, .compute = 1e-300}), std::numeric_limits<int>::max());
}

TEST(RingModelTest, TheSingleBufferHidesNothingAndATileOfCHidesAll) {
  EXPECT_EQ(HiddenShare(kExample, 720), 0);
  EXPECT_EQ(HiddenShare(kExample, 470), 0.5);
  EXPECT_EQ(HiddenShare(kExample, 220), 1);
  EXPECT_EQ(HiddenShare({.load = 0, .compute = 220}, 220), 0);
}

TEST(RingModelTest, BlocksAreBoundBySharedMemoryThreadsRegistersOrTheirNumber) {
  const DeviceTraits h200 = H200Traits();  // 228 KiB an SM, 1 KiB of it each block's
  EXPECT_EQ(ResidentBlocks(h200, 17 << 10, 128, 32), 12);
  EXPECT_EQ(ResidentBlocks(h200, 113 << 10, 128, 32), 2);
  EXPECT_EQ(ResidentBlocks(h200, (113 << 10) + 1, 128, 32), 1);
  EXPECT_EQ(ResidentBlocks(h200, 227 << 10, 128, 32), 1);
  EXPECT_EQ(ResidentBlocks(h200, (227 << 10) + 1, 128, 32), 0);
  EXPECT_EQ(ResidentBlocks(h200, 0, 128, 32), 16);
  EXPECT_EQ(ResidentBlocks(h200, 0, 128, 80), 6);
  EXPECT_EQ(ResidentBlocks(h200, 0, 32, 32), 32);
}

TEST(RingModelTest, MoreStagesBuyLessLatencyForFewerBlocks) {
  const std::vector<StageOutlook> outlook =
      OutlookOf(kExample, 5, 48 << 10, 1 << 10,
                [](int64_t smem) { return ResidentBlocks(H200Traits(), smem, 128, 80); });
  ASSERT_EQ(outlook.size(), 5u);
  for (const StageOutlook& at : outlook) {
    EXPECT_EQ(at.smem_bytes, (1 << 10) + at.stages * (48 << 10));
    EXPECT_EQ(at.resident_blocks, ResidentBlocks(H200Traits(), at.smem_bytes, 128, 80));
  }
  EXPECT_EQ(outlook[1].resident_blocks, 2);
  EXPECT_EQ(outlook[1].sm_clocks_per_tile, 180);
  EXPECT_EQ(outlook[3].resident_blocks, 1);
  EXPECT_EQ(outlook[3].uncovered_clocks, 0);
  EXPECT_EQ(outlook[3].sm_clocks_per_tile, 220);  // no waits any more, and slower
  EXPECT_EQ(outlook[4].resident_blocks, 0);
  EXPECT_TRUE(std::isinf(outlook[4].sm_clocks_per_tile));
}

}  // namespace
}  // namespace gemmd::lab
