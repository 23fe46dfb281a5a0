// A record is counted if and only if its launch can have left it.
#include "kernels/plan/stall_record.h"

#include <chrono>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace gemmd {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kWrap = uint64_t{1} << 32;

struct Launched {
  GemmProblem problem;
  Plan plan;
};

Launched Of(const char* kernel, int64_t m, int64_t n, int64_t k, Plan how = {.stages = 2}) {
  Launched launched{{}, how};
  launched.problem.m = m, launched.problem.n = n, launched.problem.k = k;
  launched.plan.row = RowByName(kernel);
  return launched;
}

// 64 tiles of 16 K tiles each, a block each; no more than an H200 has SMs.
Launched Tma() { return Of("tma_wgmma_128x128x64", 1024, 1024, 1024); }
Launched PingPong() { return Of("tma_pingpong_128x128x64", 1024, 1024, 1024); }
Launched CpAsync() { return Of("cp_async_128x128x64", 1024, 1024, 1024); }
constexpr uint64_t kKTiles = 1024;
constexpr double kBlocks = 64;

// 45 us, which with their slack are 100: at 1.98 GHz, 198000 clocks of each block.
constexpr Nanoseconds kKernel{45'000};
constexpr double kBlockClocks = 198'000;

StallSample Good() {
  return {.measured = true,
          .wait_full = 40'000,
          .wait_empty = 30'000,
          .mainloop = 2'000'000,
          .epilogue = 100'000,
          .k_tiles = kKTiles};
}

bool Kept(const StallSample& record, const Launched& launched, Nanoseconds kernel = kKernel) {
  const StallSample judged =
      JudgeStalls(record, launched.problem, launched.plan, H200Traits(), kernel);
  EXPECT_NE(judged.measured, judged.dropped);
  const StallSample& expected = judged.dropped ? StallSample{} : record;
  EXPECT_EQ(judged.wait_full, expected.wait_full);
  EXPECT_EQ(judged.wait_empty, expected.wait_empty);
  EXPECT_EQ(judged.mainloop, expected.mainloop);
  EXPECT_EQ(judged.epilogue, expected.epilogue);
  EXPECT_EQ(judged.k_tiles, expected.k_tiles);
  return judged.measured;
}

// What the record of `launched` may be with one field set to `value`.
bool KeptWith(uint64_t StallSample::*field, double value, const Launched& launched) {
  StallSample record = Good();
  record.*field = static_cast<uint64_t>(value);
  return Kept(record, launched);
}

TEST(KTilesOfLaunchTest, AreTheTilesOfDTimesTheStepsOfK) {
  const auto count = [](const Launched& l) { return KTilesOfLaunch(l.problem, l.plan); };
  EXPECT_EQ(count(Of("cp_async_128x256x32", 300, 500, 1000)), 3U * 2 * 32);
  EXPECT_EQ(count(Of("simt_64x64x16", 64, 65, 16)), 2U);
  EXPECT_EQ(count(Of("simt_64x64x16", 1, 1, 17)), 2U);
  EXPECT_EQ(count(Of("tma_wgmma_128x256x64", 300, 500, 1000)), 3U * 2 * 16);
  EXPECT_EQ(count(Of("tma_pingpong_128x176x64", 300, 500, 1000)), 3U * 3 * 16);
  Launched batch = Of("tma_wgmma_64x64x128", 64, 64, 128);
  batch.problem.batch = 7;
  EXPECT_EQ(count(batch), 7U);
}

TEST(KTilesOfLaunchTest, PartsShareTheStepsOfATileOut) {
  EXPECT_EQ(KTilesOfLaunch(Of("tma_wgmma_64x64x128", 64, 64, 1280).problem,
                           {.row = RowByName("tma_wgmma_64x64x128"), .stages = 2, .split_k = 3}),
            10U);
}

TEST(KTilesOfLaunchTest, PairsComputeTheTileBeyondAnOddEdge) {
  const Plan pair{.stages = 2, .pair = true};
  const auto count = [](const Launched& l) { return KTilesOfLaunch(l.problem, l.plan); };
  // Neighbours along M where the tile is at least as wide as it is high, else along N.
  EXPECT_EQ(count(Of("tma_wgmma_128x256x64", 300, 700, 64, pair)), 4U * 3);
  EXPECT_EQ(count(Of("tma_wgmma_256x128x64", 700, 300, 64, pair)), 3U * 4);
  EXPECT_EQ(count(Of("tma_wgmma_128x256x64", 512, 700, 64, pair)), 4U * 3);
}

TEST(JudgeStallsTest, KeepsWhatALaunchOfEachKindCanCount) {
  for (const Launched& launched : {Tma(), PingPong(), CpAsync()}) {
    EXPECT_TRUE(Kept(Good(), launched)) << launched.plan.kernel();
  }
  StallSample single = Good();
  single.k_tiles = 16 * 16 * 64;
  EXPECT_TRUE(Kept(single, Of("simt_64x64x16", 1024, 1024, 1024)));
}

TEST(JudgeStallsTest, DropsWhatNoKernelWroteAndGarbage) {
  EXPECT_FALSE(Kept({.measured = true}, Tma()));
  StallSample ones;
  std::memset(&ones.wait_full, 0xff, 5 * sizeof(uint64_t));
  ones.measured = true;
  EXPECT_FALSE(Kept(ones, Tma()));
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    StallSample garbage{.measured = true,
                        .wait_full = random(),
                        .wait_empty = random(),
                        .mainloop = random(),
                        .epilogue = random(),
                        .k_tiles = random()};
    EXPECT_FALSE(Kept(garbage, CpAsync()));
    garbage.k_tiles = kKTiles;
    EXPECT_FALSE(Kept(garbage, CpAsync()));
  }
}

TEST(JudgeStallsTest, DropsOtherKTilesThanTheLaunchs) {
  for (const uint64_t wrong : {uint64_t{0}, kKTiles - 1, kKTiles + 1, 2 * kKTiles, kMost}) {
    StallSample record = Good();
    record.k_tiles = wrong;
    EXPECT_FALSE(Kept(record, Tma())) << wrong;
  }
}

TEST(JudgeStallsTest, DropsStepsThatTookNoTime) {
  StallSample record = Good();
  record.wait_full = 0;
  record.wait_empty = 0;
  record.mainloop = kKTiles;
  EXPECT_TRUE(Kept(record, Tma()));
  record.mainloop = kKTiles - 1;
  EXPECT_FALSE(Kept(record, Tma()));
}

TEST(JudgeStallsTest, KeepsWaitsWithinTheMainLoopOfTheThreadThatCountsThem) {
  const uint64_t loop = Good().mainloop;
  for (const Launched& launched : {Tma(), PingPong()}) {
    EXPECT_TRUE(KeptWith(&StallSample::wait_full, loop, launched));
    EXPECT_FALSE(KeptWith(&StallSample::wait_full, loop + 1, launched));
    EXPECT_TRUE(KeptWith(&StallSample::wait_empty, loop + 1, launched))
        << "the producer is another thread";
  }
  const uint64_t left = loop - Good().wait_empty;
  EXPECT_TRUE(KeptWith(&StallSample::wait_full, left, CpAsync()));
  EXPECT_FALSE(KeptWith(&StallSample::wait_full, left + 1, CpAsync()));
}

// Within a part in a thousand: the limit is computed in floating point.
TEST(JudgeStallsTest, DropsMoreClocksThanItsBlocksLived) {
  const double lives = kBlocks * kBlockClocks;
  EXPECT_TRUE(KeptWith(&StallSample::wait_empty, lives * 0.999, Tma()));
  EXPECT_FALSE(KeptWith(&StallSample::wait_empty, lives * 1.001, Tma()));
  const double epilogue = Good().epilogue;
  EXPECT_TRUE(KeptWith(&StallSample::mainloop, (lives - epilogue) * 0.999, Tma()));
  EXPECT_FALSE(KeptWith(&StallSample::mainloop, (lives - epilogue) * 1.001, Tma()));
  const double loop = Good().mainloop;
  EXPECT_TRUE(KeptWith(&StallSample::epilogue, (lives - loop) * 0.999, Tma()));
  EXPECT_FALSE(KeptWith(&StallSample::epilogue, (lives - loop) * 1.001, Tma()));
}

TEST(JudgeStallsTest, TwoConsumersInTurnsCountTwice) {
  const double lives = kBlocks * kBlockClocks, epilogue = Good().epilogue;
  EXPECT_TRUE(KeptWith(&StallSample::mainloop, (2 * lives - epilogue) * 0.999, PingPong()));
  EXPECT_FALSE(KeptWith(&StallSample::mainloop, (2 * lives - epilogue) * 1.001, PingPong()));
  EXPECT_FALSE(KeptWith(&StallSample::wait_empty, lives * 1.001, PingPong())) << "one producer";
}

TEST(JudgeStallsTest, NoMoreBlocksLiveAtOnceThanTheDeviceHolds) {
  // 1024 tiles: of 384 threads one an SM, since its shared memory is more than half; of 128 threads
  // 16 an SM by the device's 2048.
  const struct {
    Launched launched;
    double blocks;
  } cases[] = {{Of("tma_wgmma_128x128x64", 4096, 4096, 64), 132},
               {Of("cp_async_128x128x64", 8192, 8192, 64), 132 * 16}};
  for (const auto& [launched, blocks] : cases) {
    StallSample record = Good();
    record.k_tiles = KTilesOfLaunch(launched.problem, launched.plan);
    const double limit = blocks * kBlockClocks - static_cast<double>(record.epilogue);
    record.mainloop = static_cast<uint64_t>(limit * 0.999);
    EXPECT_TRUE(Kept(record, launched)) << launched.plan.kernel();
    record.mainloop = static_cast<uint64_t>(limit * 1.001);
    EXPECT_FALSE(Kept(record, launched)) << launched.plan.kernel();
  }
}

TEST(JudgeStallsTest, DropsASpanThatCameOutNegative) {
  for (uint64_t StallSample::*const field : {&StallSample::wait_full, &StallSample::wait_empty,
                                             &StallSample::mainloop, &StallSample::epilogue}) {
    StallSample record = Good();
    record.*field += kWrap - 1000;
    EXPECT_FALSE(Kept(record, Tma()));
  }
}

TEST(JudgeStallsTest, DropsALaunchThatTheClockMayHaveWrappedIn) {
  using std::chrono::milliseconds;
  EXPECT_TRUE(Kept(Good(), Tma(), milliseconds(2169)));
  EXPECT_FALSE(Kept(Good(), Tma(), milliseconds(2170)));  // 2^32 clocks of 1.98 GHz
}

}  // namespace
}  // namespace gemmd
