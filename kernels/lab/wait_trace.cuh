// The probes that write waits down: they stand where WaitCounter and StallProbe do.
#pragma once

#include "kernels/cuda/device/stall_probe.cuh"
#include "kernels/cuda/device/tma_pipeline.cuh"
#include "kernels/lab/wait_trace.h"

namespace gemmd::lab {

// The calling warp's place for its waits; null where it has none.
__device__ inline WarpWaits* WaitsOfWarp(unsigned long long* counters) {
  if (counters == nullptr || blockIdx.x != 0 || blockIdx.z != 0 || threadIdx.x % 32 != 0) {
    return nullptr;
  }
  return reinterpret_cast<WarpWaits*>(reinterpret_cast<char*>(counters) + kStallBytes) +
         threadIdx.x / 32;
}

__device__ inline void WriteDown(WarpWaits* to, bool reuse, uint32_t begin) {
  if (to == nullptr) return;
  const uint32_t end = ptx::clock(), at = to->count;
  if (at < kTracedWaits) to->waits[at] = {reuse, begin, end};
  to->count = at + 1;
}

struct TracedWaits : WaitCounter {
  WarpWaits* to;

  // The first warp produces; all others consume.
  __device__ TracedWaits(unsigned long long* counters, bool counts)
      : WaitCounter(counters, counts), to(WaitsOfWarp(counters)) {}

  __device__ __forceinline__ void Wait(uint32_t barrier, uint32_t parity) {
    const uint32_t begin = ptx::clock();
    WaitCounter::Wait(barrier, parity);
    WriteDown(to, threadIdx.x < 32, begin);
  }
};

class TracedProbe : public StallProbe {
 public:
  __device__ explicit TracedProbe(unsigned long long* counters)
      : StallProbe(counters), to_(WaitsOfWarp(counters)) {}

  __device__ uint32_t Now() const { return ptx::clock(); }
  __device__ void AddWaitFull(uint32_t since) {
    WriteDown(to_, false, since);
    StallProbe::AddWaitFull(since);
  }
  __device__ void AddWaitEmpty(uint32_t since) {
    WriteDown(to_, true, since);
    StallProbe::AddWaitEmpty(since);
  }

 private:
  WarpWaits* to_;
};

}  // namespace gemmd::lab
