// The TMA ring alone: every consumer warp reads every byte of every step, whatever the number of
// stages, steps and tiles, and whoever is late.
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/tensor_map.h"
#include "tests/device/device_fixture.h"
#include "tests/device/ring_kernel.h"

namespace gemmd {
namespace {

constexpr int kBlocks = 4;  // groups are blocks or pairs
constexpr int kMaxTiles = 3;
constexpr int kMaxPingPongTiles = 5;  // three of one consumer
constexpr int kDenseStages = 16;      // every count of stages up to this, some above
constexpr uint32_t kOrigins = 4093;   // rows of the pool where a launch's data may start

struct RingCase {
  int stages = 1, k_tiles = 1, tiles = 1, consumer_warps = 4;
  bool pair = false, ping_pong = false;
  RingDelay delay = RingDelay::kNobody;
  RingFault fault = RingFault::kNone;

  int blocks_of_group() const { return pair ? 2 : 1; }
  int warps_of_block() const { return ping_pong ? 2 * consumer_warps : consumer_warps; }
};

std::string ToString(const RingCase& c) {
  const char* const delays[] = {"nobody", "the producer", "one warp", "everybody"};
  return "stages " + std::to_string(c.stages) + ", k_tiles " + std::to_string(c.k_tiles) +
         ", tiles " + std::to_string(c.tiles) + ", consumer warps " +
         std::to_string(c.consumer_warps) + (c.ping_pong ? " in turn" : "") +
         (c.pair ? ", pairs" : ", alone") + ", delays " + delays[static_cast<int>(c.delay)];
}

class RingTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (traits_.compute_capability != 90) {
      GTEST_SKIP() << traits_.name << " has compute capability " << traits_.compute_capability
                   << ", the TMA kernels are for 90";
    }
    const Status prepared = Prepare();
    ASSERT_TRUE(prepared.ok()) << prepared.ToString();
  }

  std::vector<int> StageCounts() const {
    std::vector<int> counts;
    for (int s = 1; s <= max_stages_; ++s) {
      if (s <= kDenseStages || s % 4 == 0 || s == max_stages_) counts.push_back(s);
    }
    return counts;
  }

  // Every count of steps at which one side is ahead of the other in another way.
  std::vector<RingCase> Shapes() const {
    std::vector<RingCase> shapes;
    for (const int s : StageCounts()) {
      for (const int k_tiles : std::set<int>{1, 2, s - 1, s, s + 1, 2 * s - 1, 2 * s, 2 * s + 1}) {
        if (k_tiles < 1) continue;
        for (int tiles = 1; tiles <= kMaxTiles; ++tiles) {
          for (const int warps : {4, 8}) {
            for (const bool pair : {false, true}) {
              shapes.push_back({s, k_tiles, tiles, warps, pair});
            }
          }
        }
      }
    }
    return shapes;
  }

  // Every count of steps that leaves the next tile's consumer elsewhere in the ring.
  std::vector<RingCase> PingPongShapes() const {
    std::vector<RingCase> shapes;
    for (const int s : StageCounts()) {
      for (const int k_tiles : std::set<int>{1, s - 1, s, s + 1, 2 * s, 2 * s + 1}) {
        if (k_tiles < 1) continue;
        for (int tiles = 1; tiles <= kMaxPingPongTiles; ++tiles) {
          for (const bool pair : {false, true}) {
            shapes.push_back({s, k_tiles, tiles, 4, pair, true});
          }
        }
      }
    }
    return shapes;
  }

  void ExpectExactSums(const std::vector<RingCase>& shapes, RingDelay delay) {
    for (RingCase c : shapes) {
      c.delay = delay;
      ++seed_;
      SCOPED_TRACE(ToString(c) + ", seed " + std::to_string(seed_));
      const StatusOr<std::vector<uint32_t>> sums = Sums(c);
      ASSERT_TRUE(sums.ok()) << sums.status().ToString();
      ASSERT_EQ(*sums, ExpectedSums(c));
    }
  }

  void ExpectWrongSums(RingFault fault, RingDelay delay) {
    for (const int stages : {1, 4}) {
      for (const int warps : {4, 8}) {
        for (const bool pair : {false, true}) {
          const RingCase c{stages, 3 * stages, 2, warps, pair, false, delay, fault};
          ++seed_;
          SCOPED_TRACE(ToString(c) + ", seed " + std::to_string(seed_));
          const StatusOr<std::vector<uint32_t>> sums = Sums(c);
          ASSERT_TRUE(sums.ok()) << sums.status().ToString();
          EXPECT_NE(*sums, ExpectedSums(c));
        }
      }
    }
  }

  // [block][tile][consumer warp]
  StatusOr<std::vector<uint32_t>> Sums(const RingCase& c) {
    const int rows = c.pair ? kRingBoxRows / 2 : kRingBoxRows;
    return Results(RingSumsEntry(), c, rows, kBlocks,
                   kRingProducerThreads + 32 * c.warps_of_block(),
                   kBlocks * c.tiles * c.consumer_warps);
  }
  std::vector<uint32_t> ExpectedSums(const RingCase& c) const {
    std::vector<uint32_t> sums;
    for (int block = 0; block < kBlocks; ++block) {
      for (int tile = 0; tile < c.tiles; ++tile) {
        const int matrix = block / c.blocks_of_group() * c.tiles + tile;
        sums.insert(sums.end(), static_cast<size_t>(c.consumer_warps), ExpectedSum(c, matrix));
      }
    }
    return sums;
  }

  // [block][slot][2], of one group
  StatusOr<std::vector<uint32_t>> Arrivals(const RingCase& c) {
    return Results(RingArrivalsEntry(), c, kRingBoxRows / 2, c.blocks_of_group(), 32,
                   c.blocks_of_group() * c.stages * 2);
  }

  uint32_t seed_ = std::random_device{}();  // of the current launch

 private:
  Status Prepare() {
    max_stages_ = static_cast<int>((traits_.smem_per_block_bytes - RingBytes(0)) / kRingStageBytes);
    for (const void* entry : {RingSumsEntry(), RingArrivalsEntry()}) {
      RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                RingBytes(max_stages_)));
    }
    const int boxes = kBlocks * kMaxPingPongTiles * (2 * max_stages_ + 1);
    pool_.resize((static_cast<size_t>(boxes) * kRingBoxRows + kOrigins) * kRingRowWords);
    std::mt19937 random(1);
    // Of both 16-bit halves, bits that are a finite number of the map's type.
    for (uint32_t& words : pool_) words = static_cast<uint32_t>(random()) & 0x3fff3fff;
    const auto bytes = static_cast<int64_t>(pool_.size() * sizeof(uint32_t));
    ASSIGN_OR_RETURN(device_pool_, MakeDeviceBuffer(bytes));
    RETURN_IF_CUDA_ERROR(cudaMemcpy(device_pool_.get(), pool_.data(), static_cast<size_t>(bytes),
                                    cudaMemcpyHostToDevice));
    ASSIGN_OR_RETURN(results_, MakeDeviceBuffer(kMaxResults * int64_t{sizeof(uint32_t)}));
    return OkStatus();
  }

  // The word of the pool where the launch's first matrix starts. Neighbouring launches start at
  // different rows, so what one has left in shared memory is not what the next should read there.
  size_t Origin() const { return size_t{seed_ % kOrigins} * kRingRowWords; }

  uint32_t ExpectedSum(const RingCase& c, int matrix) const {
    const uint32_t* box =
        pool_.data() + Origin() + static_cast<size_t>(matrix) * c.k_tiles * kRingBoxWords;
    uint32_t sum = 0;
    for (int step = 0; step < c.k_tiles; ++step, box += kRingBoxWords) {
      uint32_t box_sum = 0;
      for (uint32_t i = 0; i < kRingBoxWords; ++i) box_sum += box[i] * (2 * i + 1);
      sum = sum * kRingStepFactor + box_sum;
    }
    return sum;
  }

  // What `entry` leaves in its `count` results.
  StatusOr<std::vector<uint32_t>> Results(const void* entry, const RingCase& c, int box_rows,
                                          int blocks, int threads, int count) {
    if (count > kMaxResults) return Internal(std::to_string(count) + " results");
    constexpr int kRowElements = kRingRowWords * 2;
    const int64_t rows = int64_t{c.k_tiles} * kRingBoxRows;
    RingParams params;
    ASSIGN_OR_RETURN(params.map,
                     MakeTensorMap({.base = static_cast<uint32_t*>(device_pool_.get()) + Origin(),
                                    .type = DType::kBF16,
                                    .rows = rows,
                                    .cols = kRowElements,
                                    .matrices = int64_t{blocks} / c.blocks_of_group() * c.tiles,
                                    .ld = kRowElements,
                                    .matrix_stride = rows * kRowElements,
                                    .box_rows = box_rows}));
    params.results = static_cast<uint32_t*>(results_.get());
    params.stages = c.stages, params.consumer_warps = c.consumer_warps;
    params.k_tiles = c.k_tiles, params.tiles = c.tiles;
    params.pair = c.pair, params.ping_pong = c.ping_pong;
    params.seed = seed_, params.delay = c.delay, params.fault = c.fault;

    const auto bytes = static_cast<size_t>(count) * sizeof(uint32_t);
    RETURN_IF_CUDA_ERROR(cudaMemset(results_.get(), 0xff, bytes));
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {2, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<size_t>(RingBytes(c.stages));
    config.attrs = &cluster;
    config.numAttrs = c.pair ? 1 : 0;
    void* arguments[] = {&params};
    RETURN_IF_CUDA_ERROR(cudaLaunchKernelExC(&config, entry, arguments));
    std::vector<uint32_t> results(static_cast<size_t>(count));
    RETURN_IF_CUDA_ERROR(cudaMemcpy(results.data(), results_.get(), bytes, cudaMemcpyDeviceToHost));
    return results;
  }

  static constexpr int kMaxResults = 1024;

  int max_stages_ = 0;
  std::vector<uint32_t> pool_;
  DeviceBuffer device_pool_, results_;
};

TEST_F(RingTest, ConsumersReadEveryStepAtAnyStageCount) {
  ExpectExactSums(Shapes(), RingDelay::kNobody);
}

TEST_F(RingTest, ConsumersReadNothingBeforeALateProducersCopiesHaveLanded) {
  ExpectExactSums(Shapes(), RingDelay::kProducer);
}

TEST_F(RingTest, NoSlotIsRefilledBeforeTheSlowestWarpHasReadIt) {
  ExpectExactSums(Shapes(), RingDelay::kOneWarp);
}

TEST_F(RingTest, SumsDoNotDependOnWhoIsLate) { ExpectExactSums(Shapes(), RingDelay::kEverybody); }

TEST_F(RingTest, ConsumersInTurnReadEveryStepOfTheirTilesWhoeverIsLate) {
  for (const RingDelay delay :
       {RingDelay::kNobody, RingDelay::kProducer, RingDelay::kOneWarp, RingDelay::kEverybody}) {
    ASSERT_NO_FATAL_FAILURE(ExpectExactSums(PingPongShapes(), delay));
  }
}

TEST_F(RingTest, ASlotReadBeforeTheWaitShowsInTheSums) {
  // Copies of a producer that is never late can overtake the readers of a busy device.
  ExpectWrongSums(RingFault::kReadsBeforeItWaits, RingDelay::kProducer);
}

TEST_F(RingTest, ASlotReleasedBeforeItIsReadShowsInTheSums) {
  ExpectWrongSums(RingFault::kReleasesBeforeItReads, RingDelay::kNobody);
}

// The slot and the parity of the second tile's first step are those of the first tile's.
TEST_F(RingTest, ASlotReadBeforeTheTurnShowsInTheSums) {
  for (const int stages : {1, 4}) {
    for (const bool pair : {false, true}) {
      RingCase c{stages, 2 * stages, 2, 4, pair, true};
      c.delay = RingDelay::kProducer, c.fault = RingFault::kReadsBeforeItsTurn;
      ++seed_;
      SCOPED_TRACE(ToString(c) + ", seed " + std::to_string(seed_));
      const StatusOr<std::vector<uint32_t>> sums = Sums(c);
      ASSERT_TRUE(sums.ok()) << sums.status().ToString();
      const std::vector<uint32_t> expected = ExpectedSums(c);
      for (size_t i = 0; i < expected.size(); ++i) {
        const bool of_first_tile = i / static_cast<size_t>(c.consumer_warps) % 2 == 0;
        EXPECT_EQ((*sums)[i] == expected[i], of_first_tile) << "result " << i;
      }
    }
  }
}

// full: the producer's arrival and the bytes, from whichever block. empty: one arrival a consumer
// warp, of both blocks of a pair.
TEST_F(RingTest, BarriersEndAPhaseAtTheDocumentedArrivals) {
  for (const int stages : {1, 3}) {
    for (const int warps : {4, 8}) {
      for (const bool pair : {false, true}) {
        const RingCase c{stages, 1, 1, warps, pair};
        SCOPED_TRACE(ToString(c));
        const StatusOr<std::vector<uint32_t>> ends = Arrivals(c);
        ASSERT_TRUE(ends.ok()) << ends.status().ToString();
        for (size_t i = 0; i < ends->size(); i += 2) {
          EXPECT_EQ((*ends)[i], 4U) << "full, result " << i;
          EXPECT_EQ((*ends)[i + 1], static_cast<uint32_t>(warps * c.blocks_of_group()))
              << "empty, result " << i + 1;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gemmd
