// The probes that write waits down: they stand where WaitCounter and StallProbe do.
#pragma once

#include "kernels/cuda/device/stall_probe.cuh"
#include "kernels/cuda/device/tma_pipeline.cuh"
#include "kernels/lab/wait_trace.h"

namespace gemmd::lab {

__device__ inline TraceHeader* HeaderOf(unsigned long long* counters) {
  return reinterpret_cast<TraceHeader*>(reinterpret_cast<char*>(counters) + kStallBytes);
}

// The calling warp's place for its waits; null where it has none.
__device__ inline WarpWaits* WaitsOfWarp(unsigned long long* counters) {
  if (counters == nullptr || blockIdx.z != 0 || threadIdx.x % 32 != 0) return nullptr;
  TraceHeader* const header = HeaderOf(counters);
  if (blockIdx.x >= header->blocks) return nullptr;
  return reinterpret_cast<BlockWaits*>(header + 1)[blockIdx.x].warps + threadIdx.x / 32;
}

// Of the calling warp. The count is kept beside the memory that it is written to: reading it back
// would hold up the next wait.
class WaitList {
 public:
  __device__ explicit WaitList(unsigned long long* counters)
      : to_(WaitsOfWarp(counters)), count_(to_ == nullptr ? 0 : to_->count) {
    if (to_ != nullptr && blockIdx.x == 0) HeaderOf(counters)->grid = gridDim.x;
  }

  __device__ void Add(bool reuse, uint32_t begin) {
    if (to_ == nullptr) return;
    const uint32_t end = ptx::clock();
    if (count_ < kTracedWaits) to_->waits[count_] = {reuse, begin, end};
    to_->count = ++count_;
  }

 private:
  WarpWaits* to_;
  uint32_t count_;
};

struct TracedWaits : WaitCounter {
  WaitList list;

  // The first warp produces; all others consume.
  __device__ TracedWaits(unsigned long long* counters, bool counts)
      : WaitCounter(counters, counts), list(counters) {}

  __device__ __forceinline__ void Wait(uint32_t barrier, uint32_t parity) {
    const uint32_t begin = ptx::clock();
    WaitCounter::Wait(barrier, parity);
    list.Add(threadIdx.x < 32, begin);
  }
};

class TracedProbe : public StallProbe {
 public:
  __device__ explicit TracedProbe(unsigned long long* counters)
      : StallProbe(counters), list_(counters) {}

  __device__ uint32_t Now() const { return ptx::clock(); }
  __device__ void AddWaitFull(uint32_t since) {
    list_.Add(false, since);
    StallProbe::AddWaitFull(since);
  }
  __device__ void AddWaitEmpty(uint32_t since) {
    list_.Add(true, since);
    StallProbe::AddWaitEmpty(since);
  }

 private:
  WaitList list_;
};

}  // namespace gemmd::lab
