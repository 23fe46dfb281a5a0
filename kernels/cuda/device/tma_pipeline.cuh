// The ring of stages of the TMA kernels: one producer thread, several consumer warps, two barriers
// a stage.
//
//   full[s]    1 arrival (the producer's, which announces the stage's bytes) and those bytes
//   empty[s]   one arrival a warp of the slot's consumers; of both blocks where a pair shares a
//              panel, since either producer then writes to the slots of both
//
//            producer                               consumer warps
//   acquire: waits for empty[s]        <- reuse -   release: arrive at empty[s]
//   commit:  expects bytes on full[s],  - ready ->  wait:    waits for full[s]
//            copies complete on it
//
// A barrier's phase flips each time all its arrivals (and bytes) are in. The ring state flips its
// own phase when it wraps and is never reset: both sides walk the same sequence of K steps over the
// kernel's whole life, whatever tiles they belong to. A fresh barrier counts as having completed
// the phase before its first, so a producer that starts at phase 1 passes its first S acquires at
// once.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/ptx/sm90.cuh"

namespace gemmd {

struct RingState {
  int slot = 0;
  uint32_t phase = 0;

  __device__ void Advance(int stages) {
    if (++slot == stages) {
      slot = 0;
      phase ^= 1;
    }
  }

  // Past steps that are others' to take.
  __device__ void Skip(int steps, int stages) {
    const unsigned to = static_cast<unsigned>(slot) + static_cast<unsigned>(steps);
    phase ^= to / stages & 1;
    slot = static_cast<int>(to % stages);
  }
};

// In debug builds, ends a wait that an error of the protocol would make endless: seconds, where an
// honest wait takes microseconds.
class Watchdog {
 public:
#ifdef NDEBUG
  __device__ void Check() {}
#else
  __device__ void Check() {
    if (++tries_ > kTries) __trap();
  }

 private:
  static constexpr uint32_t kTries = 1u << 26;
  uint32_t tries_ = 0;
#endif
};

// The stall probe of the waiting verbs, which take any class with this one's members: the
// laboratory has one that also writes down when each wait began and ended.
//
// Cycles spent waiting: read only when the first test misses.
struct WaitCounter {
  bool on = false;
  uint32_t cycles = 0;

  WaitCounter() = default;
  // The launch's counters, null without a probe, are for classes that write down more than a sum.
  __device__ WaitCounter(unsigned long long* /*counters*/, bool counts) : on(counts) {}

  __device__ __forceinline__ void Wait(uint32_t barrier, uint32_t parity) {
    if (ptx::mbarrier_test_wait_parity(barrier, parity)) return;
    const uint32_t since = on ? ptx::clock() : 0;
    Watchdog watchdog;
    while (!ptx::mbarrier_try_wait_parity(barrier, parity)) watchdog.Check();
    if (on) cycles += ptx::clock() - since;
  }
};

// Barriers of a ring at a shared address: full and empty of slot 0, of slot 1, and so on.
class TmaRing {
 public:
  // `blocks`: 2 for a pair, which have their rings at the same address, else 1.
  __device__ TmaRing(uint32_t barriers, int stages, int blocks)
      : barriers_(barriers), stages_(stages), blocks_(blocks) {}

  static constexpr int kBarrierBytes = 16;  // of one stage

  // By one thread, before the block's first __syncthreads, or the pair's first cluster barrier.
  __device__ void Init(int consumer_warps) const {
    for (int slot = 0; slot < stages_; ++slot) {
      ptx::mbarrier_init(full(slot), 1);
      ptx::mbarrier_init(empty(slot), consumer_warps * blocks_);
    }
    ptx::fence_mbarrier_init();
  }

  // The slot is free; its copies may be issued, to complete on the returned barrier.
  template <typename Waits>
  __device__ __forceinline__ uint32_t ProducerAcquire(const RingState& state, uint32_t stage_bytes,
                                                      Waits& counter) const {
    counter.Wait(empty(state.slot), state.phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(full(state.slot), stage_bytes);
    return full(state.slot);
  }
  template <typename Waits>
  __device__ __forceinline__ void ConsumerWait(const RingState& state, Waits& counter) const {
    counter.Wait(full(state.slot), state.phase);
  }
  // By each consumer warp, when it has finished reading the slot. Lane i tells block i.
  __device__ __forceinline__ void ConsumerRelease(int slot, int lane) const {
    if (lane >= blocks_) return;
    if (blocks_ == 1) {
      ptx::mbarrier_arrive(empty(slot));
    } else {
      ptx::mbarrier_arrive_cluster(ptx::mapa(empty(slot), lane));
    }
  }

  __device__ int stages() const { return stages_; }

 private:
  __device__ uint32_t full(int slot) const { return barriers_ + slot * kBarrierBytes; }
  __device__ uint32_t empty(int slot) const { return barriers_ + slot * kBarrierBytes + 8; }

  uint32_t barriers_;
  int stages_;
  int blocks_;
};

// In ping-pong two consumer warpgroups walk one ring, a tile each in turn. A wait tells the phases
// of a barrier apart by parity alone: it is right only for a slot whose use before that has landed.
// So a consumer waits for none of its steps before the other one has been through all of its own.
//
//   turn[c]    one arrival a warp of the other consumer
class TmaTurns {
 public:
  __device__ TmaTurns(uint32_t barriers, int consumer)
      : barriers_(barriers), consumer_(consumer), phase_(consumer == 0) {}

  static constexpr int kBytes = 16;

  // With the ring's barriers.
  __device__ static void Init(uint32_t barriers) {
    for (int consumer = 0; consumer < 2; ++consumer) ptx::mbarrier_init(barriers + consumer * 8, 4);
  }

  // Before a tile's first step. The first turn is consumer 0's: its barrier is fresh.
  __device__ __forceinline__ void Wait() {
    WaitCounter not_counted;
    not_counted.Wait(barriers_ + consumer_ * 8, phase_);
    phase_ ^= 1;
  }
  // By each warp, when it has waited for the tile's last step.
  __device__ __forceinline__ void Pass(int lane) const {
    if (lane == 0) ptx::mbarrier_arrive(barriers_ + (consumer_ ^ 1) * 8);
  }

 private:
  uint32_t barriers_;
  int consumer_;
  uint32_t phase_;
};

}  // namespace gemmd
