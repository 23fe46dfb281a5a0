// Cycles that a block waits. The probe sits in the two waiting verbs of the pipeline and around the
// main loop, nowhere else.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/ptx/ptx.cuh"
#include "kernels/cuda/gemm_params.h"

namespace gemmd {

// Where this block adds to a launch's counters.
__device__ inline unsigned long long* StallSlot(unsigned long long* counters) {
  return counters + blockIdx.x % kStallSlots * kStallSlotStride;
}

// Of the cp.async kernels: a block's first warp reads them.
class StallProbe {
 public:
  __device__ explicit StallProbe(unsigned long long* counters)
      : counters_(counters), on_(counters != nullptr && threadIdx.x < 32) {}

  __device__ uint32_t Now() const { return on_ ? ptx::clock() : 0; }
  __device__ void AddWaitFull(uint32_t since) {
    if (on_) wait_full_ += ptx::clock() - since;
  }
  __device__ void AddWaitEmpty(uint32_t since) {
    if (on_) wait_empty_ += ptx::clock() - since;
  }
  __device__ void AddMainloop(uint32_t since, int k_tiles) {
    if (!on_) return;
    mainloop_ += ptx::clock() - since;
    k_tiles_ += k_tiles;
  }
  __device__ void AddEpilogue(uint32_t since) {
    if (on_) epilogue_ += ptx::clock() - since;
  }

  // Once per block, at its end.
  __device__ void Report() const {
    if (!on_ || threadIdx.x != 0) return;
    const uint32_t values[kStallCounters] = {wait_full_, wait_empty_, mainloop_, epilogue_,
                                             k_tiles_};
    unsigned long long* const slot = StallSlot(counters_);
#pragma unroll
    for (int i = 0; i < kStallCounters; ++i) {
      atomicAdd(&slot[i], static_cast<unsigned long long>(values[i]));
    }
  }

 private:
  unsigned long long* counters_;
  bool on_;
  uint32_t wait_full_ = 0, wait_empty_ = 0, mainloop_ = 0, epilogue_ = 0, k_tiles_ = 0;
};

// Of the TMA kernels: what one consumer thread has counted over the tiles of its block. The sums
// stand in shared memory, since registers are the accumulators', and additions to device memory
// tile by tile cost short tiles a tenth of their time. They are of 32 bits, as the spans of the
// clock that they are made of: JudgeStalls drops what a longer launch has counted.
class TileSums {
 public:
  static constexpr int kBytes = 16;

  // `sums`: kBytes of shared memory, aligned to as many, of the calling thread alone.
  __device__ explicit TileSums(char* sums) : sums_(reinterpret_cast<uint4*>(sums)) {}

  __device__ void Clear() { *sums_ = {0, 0, 0, 0}; }
  // The next tile does not wait for it.
  __device__ void Add(uint32_t wait_full, uint32_t mainloop, uint32_t epilogue, int k_tiles) {
    const uint32_t at = ptx::SharedAddress(sums_);
    ptx::red_shared_add(at, wait_full);
    ptx::red_shared_add(at + 4, mainloop);
    ptx::red_shared_add(at + 8, epilogue);
    ptx::red_shared_add(at + 12, static_cast<uint32_t>(k_tiles));
  }
  // Once per block, at its end.
  __device__ void Report(unsigned long long* counters) const {
    const uint4 sums = *sums_;
    unsigned long long* const slot = StallSlot(counters);
    atomicAdd(&slot[0], static_cast<unsigned long long>(sums.x));
    atomicAdd(&slot[2], static_cast<unsigned long long>(sums.y));
    atomicAdd(&slot[3], static_cast<unsigned long long>(sums.z));
    atomicAdd(&slot[4], static_cast<unsigned long long>(sums.w));
  }

 private:
  uint4* sums_;
};

}  // namespace gemmd
