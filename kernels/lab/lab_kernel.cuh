// The kernel of lab_kernel.h, for either way of copying.
#pragma once

#include "kernels/cuda/device/ptx/ptx.cuh"
#include "kernels/cuda/device/ptx/sm90.cuh"
#include "kernels/cuda/device/tma_pipeline.cuh"
#include "kernels/lab/lab_kernel.h"

namespace gemmd::lab {

// Of the block; 0 is __syncthreads.
inline constexpr int kReadyBarrier = 1, kReuseBarrier = 2, kSomeBarrier = 3;

// In shared memory, before the slots.
struct Notes {
  uint64_t landed[kMaxStages];     // mbarriers
  uint32_t issued_at[kMaxStages];  // by and for the first thread
  uint32_t done;                   // not 0: all steps are through; for the observer
};
static_assert(sizeof(Notes) <= kFixedBytes);

struct Slots {
  char* base;
  int bytes;  // of one

  __device__ char* At(int slot) const { return base + slot * bytes; }
};

__device__ inline bool HasTrace(const LabParams& p) {
  return p.trace != nullptr && static_cast<int>(blockIdx.x) < p.trace_blocks;
}

// Writes the moments of the calling warp.
class Tracer {
 public:
  __device__ explicit Tracer(const LabParams& p)
      : at_(HasTrace(p) && threadIdx.x % 32 == 0
                ? p.trace + blockIdx.x * TraceWords(p.steps) + threadIdx.x / 32 * kMoments
                : nullptr) {}

  __device__ void Mark(int step, Moment moment) const {
    if (at_ == nullptr) return;
    at_[step * (kTraceWarps * kMoments) + static_cast<int>(moment)] = ptx::clock();
  }

 private:
  uint32_t* at_;
};

// Which panel of its strip a block reads next: step % panels, without a division.
class PanelWalk {
 public:
  __device__ explicit PanelWalk(int panels) : panels_(panels) {}
  __device__ int Next() {
    const int panel = panel_;
    panel_ = panel + 1 == panels_ ? 0 : panel + 1;
    return panel;
  }

 private:
  int panels_;
  int panel_ = 0;
};

__device__ inline int FirstRowOfStrip(const LabParams& p) {
  return static_cast<int>(blockIdx.x) % p.strips * kPanelRows;
}

// Copies by every thread, in groups that complete in order. A warp copies the rows of another one:
// what overtakes a reader is never held up by the reader's own delay.
class CpAsyncCopies {
 public:
  __device__ CpAsyncCopies(const LabParams& p, Notes& notes, Slots slots)
      : p_(p), notes_(notes), slots_(slots), walk_(p.panels) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    first_row_ = (warp + 1) % kWarps * kRows + lane / 8;
    chunk_ = lane % 8;
    from_ = p.array + (FirstRowOfStrip(p) + first_row_) * p.ld + chunk_ * 4;
    stride_ = 4 * p.ld;
  }

  // By one thread, before the block's first barrier.
  __device__ void Init() const {
    for (int slot = 0; slot < p_.stages; ++slot) {
      ptx::mbarrier_init(ptx::SharedAddress(&notes_.landed[slot]), kThreads);
    }
  }

  // A group each time, also where nothing is copied: the wait counts groups. Steps come in order.
  __device__ void Issue(int slot, int step) {
    if (step < p_.steps) {
      const uint32_t to = ptx::SharedAddress(slots_.At(slot));
      const uint32_t* const from = from_ + walk_.Next() * kPanelRowWords;
#pragma unroll
      for (int i = 0; i < kRows * 8 / 32; ++i) {
        const int row = first_row_ + i * 4;
        ptx::cp_async_cg_16(to + row * 128 + ((chunk_ ^ (row & 7)) << 4), from + i * stride_, 16);
      }
      // For the observer; the block itself goes by its groups.
      if (HasTrace(p_)) {
        ptx::cp_async_mbarrier_arrive_noinc(ptx::SharedAddress(&notes_.landed[slot]));
      }
    }
    ptx::cp_async_commit_group();
  }

  // The oldest group of this thread's has landed: `stages` of them are under way at each step.
  __device__ void WaitLanded(const RingState&) const {
    static_assert(kMaxStages == 8);
    switch (p_.stages) {
      case 8: ptx::cp_async_wait_group<7>(); break;
      case 7: ptx::cp_async_wait_group<6>(); break;
      case 6: ptx::cp_async_wait_group<5>(); break;
      case 5: ptx::cp_async_wait_group<4>(); break;
      case 4: ptx::cp_async_wait_group<3>(); break;
      case 3: ptx::cp_async_wait_group<2>(); break;
      case 2: ptx::cp_async_wait_group<1>(); break;
      default: ptx::cp_async_wait_group<0>(); break;
    }
  }
  // Reading and refilling are ordered by the barrier alone.
  __device__ void FenceReads() const {}

 private:
  static constexpr int kRows = kPanelRows / kWarps;

  const LabParams& p_;
  Notes& notes_;
  Slots slots_;
  PanelWalk walk_;
  const uint32_t* from_;  // this thread's first chunk of the strip's first panel
  int64_t stride_;        // words from one chunk of a panel to the next
  int first_row_, chunk_;
};

// Copies by the first thread, which complete on the slot's barrier.
class TmaCopies {
 public:
  __device__ TmaCopies(const LabParams& p, Notes& notes, Slots slots)
      : p_(p), notes_(notes), slots_(slots), walk_(p.panels), row_(FirstRowOfStrip(p)) {}

  __device__ void Init() const {
    for (int slot = 0; slot < p_.stages; ++slot) ptx::mbarrier_init(Landed(slot), 1);
    ptx::fence_mbarrier_init();
  }

  __device__ void Issue(int slot, int step) {
    if (threadIdx.x != 0 || step >= p_.steps) return;
    ptx::mbarrier_arrive_expect_tx(Landed(slot), kPanelBytes);
    ptx::cp_async_bulk_tensor_3d_load(ptx::SharedAddress(slots_.At(slot)), &p_.map, Landed(slot),
                                      walk_.Next() * kPanelRowWords, row_, 0);
  }

  __device__ void WaitLanded(const RingState& state) const {
    WaitCounter not_counted;
    not_counted.Wait(Landed(state.slot), state.phase);
  }
  // The copy engine writes by another proxy than the loads read by.
  __device__ void FenceReads() const { ptx::fence_proxy_async_shared(); }

 private:
  __device__ uint32_t Landed(int slot) const { return ptx::SharedAddress(&notes_.landed[slot]); }

  const LabParams& p_;
  Notes& notes_;
  Slots slots_;
  PanelWalk walk_;
  int row_;
};

__device__ inline void SpinUntil(uint32_t since, uint32_t clocks) {
  while (ptx::clock() - since < clocks) {
  }
}

// By a whole warp: the sum of its rows of a slot, and `work` rounds behind it.
__device__ inline uint32_t Consume(const char* slot, int work) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kChunks = kWarpWords / 4 / 32;  // of 4 words, a lane
  const int first = warp * (kWarpWords / 4) + lane;
  uint4 words[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int index = first + i * 32, row = index / 8, chunk = index % 8;
    words[i] = *reinterpret_cast<const uint4*>(slot + row * 128 + ((chunk ^ (row & 7)) << 4));
  }
  uint4 sums = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const uint32_t word = (first + i * 32) * 4;
    sums.x += words[i].x * WordFactor(word);
    sums.y += words[i].y * WordFactor(word + 1);
    sums.z += words[i].z * WordFactor(word + 2);
    sums.w += words[i].w * WordFactor(word + 3);
  }
  uint32_t sum = sums.x + sums.y + sums.z + sums.w;
  sum = __reduce_add_sync(0xffffffff, sum);
#pragma unroll 1
  for (int round = 0; round < work; ++round) sum = sum * kWorkFactor + kWorkTerm;
  return sum;
}

// Sees panels land, and does nothing else. Nobody waits for it: should it miss a use of a slot, it
// ends with the block's work.
__device__ inline void Observe(const LabParams& p, const Notes& notes) {
  if (threadIdx.x % 32 != 0 || !HasTrace(p) || !p.loads) return;
  const Tracer tracer(p);
  const volatile uint32_t& done = notes.done;
  RingState state;
  for (int step = 0; step < p.steps; ++step) {
    const uint32_t barrier = ptx::SharedAddress(&notes.landed[state.slot]);
    while (!ptx::mbarrier_test_wait_parity(barrier, state.phase)) {
      if (done != 0) return;
    }
    tracer.Mark(step, Moment::kLanded);
    state.Advance(p.stages);
  }
}

// The reuse edge: what of it the fault leaves.
template <Fault kFault>
__device__ void WaitForReaders(bool last_warp) {
  if constexpr (kFault == Fault::kReuseAfterSome) {
    // The last warp, which refills too, waits for the others as they do for one another.
    if (last_warp) {
      ptx::bar_sync(kSomeBarrier, kThreads);
    } else {
      ptx::bar_arrive(kSomeBarrier, kThreads);
      ptx::bar_sync(kReuseBarrier, kThreads - 32);
    }
  } else if constexpr (kFault != Fault::kNoReuse) {
    ptx::bar_sync(kReuseBarrier, kThreads);
  }
}

template <typename Copies, Fault kFault>
__device__ void Run(const LabParams& p, Copies& copies, Notes& notes, Slots slots) {
  constexpr bool kTooEarly = kFault == Fault::kNoReady || kFault == Fault::kIssueForCompletion;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const bool first = threadIdx.x == 0, last_warp = warp == kWarps - 1;
  const Tracer tracer(p);
  const auto issue = [&](int slot, int step) {
    if (!p.loads) return;
    copies.Issue(slot, step);
    if (first) notes.issued_at[slot] = ptx::clock();
    if (warp == 0 && step < p.steps) tracer.Mark(step, Moment::kIssued);
  };
  BlockReport report;
  const uint32_t start = ptx::clock();
  for (int slot = 0; slot < p.stages; ++slot) issue(slot, slot);
  RingState state;
  for (int step = 0; step < p.steps; ++step) {
    tracer.Mark(step, Moment::kWait);
    const uint32_t waiting = ptx::clock();
    if constexpr (!kTooEarly) {
      if (p.loads) {
        copies.WaitLanded(state);
        if (first) SpinUntil(notes.issued_at[state.slot], p.load_clocks);
      }
    }
    __syncwarp();
    if constexpr (kFault != Fault::kNoReady) ptx::bar_sync(kReadyBarrier, kThreads);
    tracer.Mark(step, Moment::kReady);
    const uint32_t ready = ptx::clock();
    if (last_warp) SpinUntil(ready, p.delay_clocks);

    if (p.consumes) {
      const uint32_t sum = Consume(slots.At(state.slot), p.work);
      report.sum += sum;
      if (p.sums != nullptr && threadIdx.x % 32 == 0) {
        p.sums[(static_cast<int64_t>(blockIdx.x) * p.steps + step) * kWarps + warp] = sum;
      }
    }
    tracer.Mark(step, Moment::kRead);
    const uint32_t read = ptx::clock();

    if constexpr (kTooEarly) {
      if (p.loads) copies.WaitLanded(state);
    }
    copies.FenceReads();
    WaitForReaders<kFault>(last_warp);
    tracer.Mark(step, Moment::kReuse);
    const uint32_t reusable = ptx::clock();
    issue(state.slot, step + p.stages);
    report.issue += ptx::clock() - reusable;
    report.wait_ready += ready - waiting;
    report.wait_reuse += reusable - read;
    state.Advance(p.stages);
  }
  report.clocks = ptx::clock() - start;
  if (first) {
    p.reports[blockIdx.x] = report;
    *static_cast<volatile uint32_t*>(&notes.done) = 1;
  }
  ptx::cp_async_wait_group<0>();  // the empty groups of the drain; all others were waited for
}

template <typename Copies, Fault kFault>
__global__ void __launch_bounds__(kThreads + kObserverThreads, 1)
    LabKernel(const __grid_constant__ LabParams p) {
  extern __shared__ __align__(1024) char smem[];
  Notes& notes = *reinterpret_cast<Notes*>(smem);
  const Slots slots{smem + kFixedBytes, p.stage_bytes};
  Copies copies(p, notes, slots);
  if (threadIdx.x == 0) {
    copies.Init();
    notes.done = 0;
  }
  for (int slot = 0; slot < p.stages; ++slot) {
    for (int word = static_cast<int>(threadIdx.x); word < kPanelWords;
         word += static_cast<int>(blockDim.x)) {
      reinterpret_cast<uint32_t*>(slots.At(slot))[word] = kPoison;
    }
  }
  copies.FenceReads();
  __syncthreads();
  if (threadIdx.x < kThreads) {
    Run<Copies, kFault>(p, copies, notes, slots);
  } else {
    Observe(p, notes);
  }
}

template <typename Copies>
const void* EntryOf(Fault fault) {
  switch (fault) {
    case Fault::kNone: return reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kNone>);
    case Fault::kNoReuse: return reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kNoReuse>);
    case Fault::kReuseAfterSome:
      return reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kReuseAfterSome>);
    case Fault::kNoReady: return reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kNoReady>);
    case Fault::kIssueForCompletion:
      return reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kIssueForCompletion>);
  }
  return nullptr;
}

}  // namespace gemmd::lab
