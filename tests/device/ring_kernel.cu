#include "kernels/cuda/device/ptx/ptx.cuh"
#include "kernels/cuda/device/ptx/sm90.cuh"
#include "kernels/cuda/device/tma_pipeline.cuh"
#include "tests/device/ring_kernel.h"

#ifdef NDEBUG
#error "without the watchdog's trap a wrong ring hangs instead of failing: compile with -UNDEBUG"
#endif

namespace gemmd {
namespace {

constexpr uint32_t kMaxDelayNs = 1000;  // asked for; nanosleep takes up to twice as long
constexpr uint32_t kRefillNs = 20'000;  // ample for a slot to be filled again
constexpr int kPolls = 100;             // of about 1 us: ample for an arrival or a copy
constexpr int kMaxThreads = kRingProducerThreads + 32 * kMaxRingConsumerWarps;

static_assert(kRingStageBytes == kRingBoxBytes + TmaRing::kBarrierBytes);
static_assert(kRingTurnBytes == TmaTurns::kBytes);
static_assert(kRingBoxBytes / 2 % 1024 == 0, "halves keep the swizzle's phase");

__device__ uint32_t Mix(uint32_t x) {
  x = (x ^ x >> 16) * 0x85ebca6b;
  x = (x ^ x >> 13) * 0xc2b2ae35;
  return x ^ x >> 16;
}

// The delays of the producer or of one consumer warp: of all its threads alike.
class Delays {
 public:
  __device__ Delays(bool on, uint32_t seed) : on_(on), state_(seed) {}

  __device__ void Maybe() {
    if (!on_) return;
    state_ = Mix(state_ + 0x9e3779b9);
    if (state_ % 4 == 0) __nanosleep(state_ / 4 % (kMaxDelayNs + 1));
  }

 private:
  bool on_;
  uint32_t state_;
};

// Where a thread's block stands.
struct Place {
  int blocks;  // of the group: 2 for a pair
  int rank;    // in the group
  int group;

  __device__ explicit Place(const RingParams& p)
      : blocks(p.pair ? 2 : 1),
        rank(p.pair ? static_cast<int>(ptx::cluster_ctarank()) : 0),
        group(static_cast<int>(blockIdx.x) / blocks) {}
};

// Half `half` of the box from `row` on, into the slots of both blocks of a pair.
__device__ void LoadHalf(const RingParams& p, uint32_t slot, uint32_t barrier, int half, int row,
                         int matrix) {
  const uint32_t dst = slot + half * (kRingBoxBytes / 2);
  row += half * (kRingBoxRows / 2);
  if (p.pair) {
    ptx::cp_async_bulk_tensor_3d_load_multicast(dst, &p.map, barrier, 0, row, matrix, 0b11);
  } else {
    ptx::cp_async_bulk_tensor_3d_load(dst, &p.map, barrier, 0, row, matrix);
  }
}

// By one thread.
__device__ void Produce(const RingParams& p, const TmaRing& ring, const Place& place,
                        uint32_t slots) {
  const bool delayed = p.delay == RingDelay::kProducer || p.delay == RingDelay::kEverybody;
  Delays delays(delayed, Mix(p.seed) ^ blockIdx.x << 8 ^ 0xff);
  WaitCounter waits;
  RingState state;
  for (int tile = 0; tile < p.tiles; ++tile) {
    const int matrix = place.group * p.tiles + tile;
    for (int step = 0; step < p.k_tiles; ++step) {
      delays.Maybe();
      const uint32_t barrier = ring.ProducerAcquire(state, kRingBoxBytes, waits);
      delays.Maybe();
      const uint32_t slot = slots + state.slot * kRingBoxBytes;
      const int row = step * kRingBoxRows;
      if (p.pair) {
        LoadHalf(p, slot, barrier, place.rank, row, matrix);
      } else {
        ptx::cp_async_bulk_tensor_3d_load(slot, &p.map, barrier, 0, row, matrix);
      }
      state.Advance(p.stages);
    }
  }
}

// By a whole warp, for each of its lanes; all of them have read the box. 16-byte chunk c of row r
// lies at c ^ (r % 8), as the map's swizzle says.
__device__ uint32_t BoxSum(const char* box, int lane) {
  uint32_t sum = 0;
#pragma unroll 4
  for (int i = lane; i < kRingBoxWords / 4; i += 32) {
    const int row = i / 8, chunk = i % 8;
    const uint4 words =
        *reinterpret_cast<const uint4*>(box + row * 128 + ((chunk ^ (row & 7)) << 4));
    const uint32_t factor = 2 * (4 * i) + 1;
    sum +=
        words.x * factor + words.y * (factor + 2) + words.z * (factor + 4) + words.w * (factor + 6);
  }
  return __reduce_add_sync(0xffffffff, sum);
}

// By each consumer warp.
__device__ void Consume(const RingParams& p, const TmaRing& ring, uint32_t turn_barriers,
                        const Place& place, const char* slots) {
  const int warp = static_cast<int>(threadIdx.x - kRingProducerThreads) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int consumers = p.ping_pong ? 2 : 1, warps = consumers * p.consumer_warps;
  const int consumer = warp / p.consumer_warps;
  const uint32_t slow_warp = Mix(p.seed + place.group) % (place.blocks * warps);
  const bool slow = slow_warp == static_cast<uint32_t>(place.rank * warps + warp);
  Delays delays(p.delay == RingDelay::kEverybody || (p.delay == RingDelay::kOneWarp && slow),
                Mix(p.seed) ^ blockIdx.x << 8 ^ warp);
  WaitCounter waits;
  TmaTurns turns(turn_barriers, consumer);
  RingState state;
  state.Skip(consumer * p.k_tiles, p.stages);
  for (int tile = consumer; tile < p.tiles; tile += consumers) {
    uint32_t sum = 0, early_sum = 0;
    if (p.fault == RingFault::kReadsBeforeItsTurn) {
      ring.ConsumerWait(state, waits);
      early_sum = BoxSum(slots + state.slot * kRingBoxBytes, lane);
      ptx::bar_sync(1, 32 * warps);  // no warp releases the slot before all have read its first use
    }
    if (p.ping_pong) {
      delays.Maybe();
      turns.Wait();
    }
    for (int step = 0; step < p.k_tiles; ++step) {
      const char* const box = slots + state.slot * kRingBoxBytes;
      uint32_t box_sum = 0;
      delays.Maybe();
      if (p.fault == RingFault::kReadsBeforeItWaits) box_sum = BoxSum(box, lane);
      ring.ConsumerWait(state, waits);
      if (p.fault == RingFault::kReleasesBeforeItReads) {
        __syncwarp();  // no lane waits any more for what the refill ends
        ring.ConsumerRelease(state.slot, lane);
        __nanosleep(kRefillNs);
      }
      delays.Maybe();
      __syncwarp();  // keeps the loads below behind the delay
      if (p.ping_pong && step + 1 == p.k_tiles) turns.Pass(lane);  // no later than it may
      if (p.fault != RingFault::kReadsBeforeItWaits) box_sum = BoxSum(box, lane);
      if (p.fault == RingFault::kReadsBeforeItsTurn && step == 0) box_sum = early_sum;
      delays.Maybe();
      // Ordinary loads read the slot and the copy engine, another proxy, writes to it next; the
      // barrier orders what is of one proxy. So each lane that has read puts a fence between the
      // two before the warp tells of it. (wgmma reads by the copy engine's own proxy and needs
      // none. Nor do the loads behind the wait: a copy's completion has the fence built in.)
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (p.fault != RingFault::kReleasesBeforeItReads) ring.ConsumerRelease(state.slot, lane);
      state.Advance(p.stages);
      sum = sum * kRingStepFactor + box_sum;
    }
    if (lane == 0) {
      p.results[(blockIdx.x * p.tiles + tile) * p.consumer_warps + warp % p.consumer_warps] = sum;
    }
    state.Skip((consumers - 1) * p.k_tiles, p.stages);
  }
}

__global__ void __launch_bounds__(kMaxThreads, 1)
    RingSums(const __grid_constant__ RingParams params) {
  extern __shared__ __align__(1024) char smem[];
  const uint32_t slots = ptx::SharedAddress(smem);
  const Place place(params);
  const TmaRing ring(slots + params.stages * kRingBoxBytes, params.stages, place.blocks);
  const uint32_t turn_barriers = slots + params.stages * kRingStageBytes;
  if (threadIdx.x == 0) {
    TmaTurns::Init(turn_barriers);
    ring.Init(params.consumer_warps);
  }
  if (params.pair) {
    ptx::cluster_sync_relaxed();  // the initialised barriers have a fence of their own
  } else {
    __syncthreads();
  }
  if (threadIdx.x >= kRingProducerThreads) {
    Consume(params, ring, turn_barriers, place, smem);
  } else if (threadIdx.x == 0) {
    Produce(params, ring, place, slots);
  }
  // The other block of a pair may still fill this one's slots, or tell it of its own.
  if (params.pair) ptx::cluster_sync_relaxed();
}

// What ends a barrier's first phase, event by event.
class FirstPhase {
 public:
  __device__ FirstPhase(uint32_t barrier, bool pair) : barrier_(barrier), pair_(pair) {}

  // By all threads of the group, after each event. Arrivals from the other block and copies take
  // a while: an event has no effect when none has shown by the last poll.
  __device__ void Observe() {
    Meet();
    ++events_;
    for (int i = 0; ended_at_ == 0 && i < kPolls; ++i) {
      if (ptx::mbarrier_test_wait_parity(barrier_, 0)) {
        ended_at_ = events_;
      } else {
        __nanosleep(1000);
      }
    }
    Meet();
  }

  __device__ uint32_t ended_at() const { return ended_at_; }

 private:
  __device__ void Meet() const {
    if (pair_) {
      ptx::cluster_sync_relaxed();
    } else {
      __syncwarp();
    }
  }

  uint32_t barrier_;
  bool pair_;
  uint32_t events_ = 0, ended_at_ = 0;
};

__global__ void __launch_bounds__(32) RingArrivals(const __grid_constant__ RingParams params) {
  extern __shared__ __align__(1024) char smem[];
  const uint32_t slots = ptx::SharedAddress(smem);
  const uint32_t barriers = slots + params.stages * kRingBoxBytes;
  const Place place(params);
  const TmaRing ring(barriers, params.stages, place.blocks);
  const int lane = static_cast<int>(threadIdx.x);
  if (lane == 0) ring.Init(params.consumer_warps);
  if (params.pair) {
    ptx::cluster_sync_relaxed();
  } else {
    __syncthreads();
  }
  WaitCounter waits;
  for (RingState state; state.phase == 0; state.Advance(params.stages)) {
    // As the ring documents its barriers: full and empty of slot 0, of slot 1, and so on.
    const uint32_t full_barrier = barriers + state.slot * TmaRing::kBarrierBytes;
    const uint32_t empty_barrier = full_barrier + 8;
    FirstPhase full(full_barrier, params.pair), empty(empty_barrier, params.pair);
    for (int half = 0; half < 2; ++half) {
      if (lane == 0 && half == place.rank) ring.ProducerAcquire(state, kRingBoxBytes, waits);
      full.Observe();
      if (lane == 0 && (half == place.rank || !params.pair)) {
        LoadHalf(params, slots + state.slot * kRingBoxBytes, full_barrier, half, 0, 0);
      }
      full.Observe();
    }
    ring.ConsumerWait(state, waits);  // the copies have landed before the block ends
    for (int turn = 0; turn < params.consumer_warps * place.blocks; ++turn) {
      if (turn % place.blocks == place.rank) ring.ConsumerRelease(state.slot, lane);
      empty.Observe();
    }
    if (lane == 0) {
      uint32_t* const results = params.results + (blockIdx.x * params.stages + state.slot) * 2;
      results[0] = full.ended_at();
      results[1] = empty.ended_at();
    }
  }
}

}  // namespace

const void* RingSumsEntry() { return reinterpret_cast<const void*>(&RingSums); }
const void* RingArrivalsEntry() { return reinterpret_cast<const void*>(&RingArrivals); }

}  // namespace gemmd
