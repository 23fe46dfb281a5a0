// The ring of stages of the cp.async kernels.
//
// A stage is a slot of shared memory that holds one K step's panels of A and B. Two edges order its
// use, and both are always enforced:
//
//            producer                          consumer
//   acquire: waits until the slot     <- reuse -   release: done reading the slot
//            is free
//   commit:  copies are under way     - ready ->   wait:    waits until they have landed
//
// Every thread of the block is both: it issues its share of the copies and computes its share of
// the tile. With S > 1 stages a panel is asked for S - 1 steps before its use, and one block
// barrier a step carries both edges: behind it, the panel of this step has landed for every thread
// (each waited for its own copies first), and no thread still reads the slot of the step before,
// which is the slot that the next acquire hands out. With S = 1 there is one slot, so acquire needs
// a barrier of its own and load and compute alternate: the single-buffer kernel that all others are
// compared with.
//
//   step          0    1    2    3         S = 3: the copies for step k + 2 are issued in step k
//   slot read     0    1    2    0
//   slot filled   2    0    1    2
#pragma once

#include "kernels/cuda/device/ptx/ptx.cuh"
#include "kernels/cuda/device/stall_probe.cuh"

namespace gemmd {

inline constexpr int kMaxCpAsyncStages = 8;

// Position in the ring. Wraps; lives as long as the kernel.
class RingIndex {
 public:
  __device__ explicit RingIndex(int stages) : stages_(stages) {}
  __device__ int slot() const { return slot_; }
  __device__ void Advance() { slot_ = slot_ + 1 == stages_ ? 0 : slot_ + 1; }

 private:
  int stages_;
  int slot_ = 0;
};

class CpAsyncPipeline {
 public:
  // `stages` is 1 to kMaxCpAsyncStages and the same for every thread of the block.
  __device__ explicit CpAsyncPipeline(int stages)
      : stages_(stages), produce_(stages), consume_(stages) {}

  // Steps that are asked for before the first is consumed.
  __device__ int lead() const { return stages_ == 1 ? 1 : stages_ - 1; }
  __device__ bool single() const { return stages_ == 1; }

  // The slot to fill. All threads of the block call it.
  template <typename Probe>
  __device__ int ProducerAcquire(Probe& probe) {
    if (stages_ == 1) {
      const uint32_t since = probe.Now();
      __syncthreads();
      probe.AddWaitEmpty(since);
    }
    return produce_.slot();
  }
  // A group even when nothing was copied: ConsumerWait counts groups.
  __device__ void ProducerCommit() {
    ptx::cp_async_commit_group();
    produce_.Advance();
  }

  // The slot of the next step, landed for all threads. All threads of the block call it.
  template <typename Probe>
  __device__ int ConsumerWait(Probe& probe) {
    const uint32_t since = probe.Now();
    WaitForOldest();
    __syncthreads();
    probe.AddWaitFull(since);
    return consume_.slot();
  }
  __device__ void ConsumerRelease() { consume_.Advance(); }

  // No copy is outstanding and no thread reads the ring: its memory may be used otherwise.
  __device__ void Drain() {
    ptx::cp_async_wait_group<0>();
    __syncthreads();
  }

 private:
  // Leaves the S - 2 newest groups in flight. The count is an immediate of the instruction; the
  // branch is uniform over the grid.
  __device__ void WaitForOldest() const {
    static_assert(kMaxCpAsyncStages == 8);
    switch (stages_) {
      case 8: ptx::cp_async_wait_group<6>(); break;
      case 7: ptx::cp_async_wait_group<5>(); break;
      case 6: ptx::cp_async_wait_group<4>(); break;
      case 5: ptx::cp_async_wait_group<3>(); break;
      case 4: ptx::cp_async_wait_group<2>(); break;
      case 3: ptx::cp_async_wait_group<1>(); break;
      default: ptx::cp_async_wait_group<0>(); break;
    }
  }

  int stages_;
  RingIndex produce_, consume_;
};

// The main loop of every cp.async kernel: prologue, steady state, drain.
//   load(slot, step)  issues the copies of a K step into a slot
//   compute(slot)     consumes a slot
// Steps past k_tiles are committed empty, so that short problems (k_tiles < stages) and the drain
// take no other path.
template <typename Probe, typename Load, typename Compute>
__device__ __forceinline__ void RunPipeline(CpAsyncPipeline& pipeline, Probe& probe, int k_tiles,
                                            Load&& load, Compute&& compute) {
  const auto produce = [&](int step) {
    const int slot = pipeline.ProducerAcquire(probe);
    if (step < k_tiles) load(slot, step);
    pipeline.ProducerCommit();
  };
  const int lead = pipeline.lead();
  for (int step = 0; step < lead; ++step) produce(step);
  for (int step = 0; step < k_tiles; ++step) {
    const int slot = pipeline.ConsumerWait(probe);
    if (!pipeline.single()) produce(step + lead);
    compute(slot);
    pipeline.ConsumerRelease();
    if (pipeline.single()) produce(step + 1);
  }
  pipeline.Drain();
}

}  // namespace gemmd
