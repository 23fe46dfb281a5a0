// Cycles that a block waits, read by its first warp. The probe sits in the two waiting verbs of the
// pipeline and around the main loop, nowhere else.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/ptx/ptx.cuh"
#include "kernels/cuda/gemm_params.h"

namespace gemmd {

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
#pragma unroll
    for (int i = 0; i < kStallCounters; ++i) {
      atomicAdd(&counters_[i], static_cast<unsigned long long>(values[i]));
    }
  }

 private:
  unsigned long long* counters_;
  bool on_;
  uint32_t wait_full_ = 0, wait_empty_ = 0, mainloop_ = 0, epilogue_ = 0, k_tiles_ = 0;
};

}  // namespace gemmd
