// The kernel of lab_kernel.h, for either way of copying.
#pragma once

#include "kernels/cuda/device/ptx/ptx.cuh"
#include "kernels/cuda/device/ptx/sm90.cuh"
#include "kernels/cuda/device/tma_pipeline.cuh"
#include "kernels/lab/lab_kernel.h"

namespace gemmd::lab {

// The block's shared memory, by 32-bit addresses: barriers and notes, then the slots.
class Ring {
 public:
  __device__ Ring(uint32_t shared, int stage_bytes) : shared_(shared), stage_bytes_(stage_bytes) {}

  // Barriers. landed: the copies' arrivals, as each way of copying has them; ready: the relay's;
  // empty: one a consumer warp; issued: one a thread that has issued its copies, in one fault.
  __device__ uint32_t landed(int slot) const { return shared_ + slot * 8; }
  __device__ uint32_t ready(int slot) const { return landed(slot) + kOfKind; }
  __device__ uint32_t empty(int slot) const { return landed(slot) + 2 * kOfKind; }
  __device__ uint32_t issued(int slot) const { return landed(slot) + 3 * kOfKind; }
  // When the producer began to issue the slot's copies, for the relay.
  __device__ uint32_t issued_at(int slot) const { return shared_ + 4 * kOfKind + slot * 4; }

  __device__ uint32_t panel(int slot) const { return shared_ + kFixedBytes + slot * stage_bytes_; }

 private:
  static constexpr int kOfKind = kMaxStages * 8;
  static_assert(4 * kOfKind + kMaxStages * 4 <= kFixedBytes);

  uint32_t shared_;
  int stage_bytes_;
};

// Waits until the barrier has completed the phase of this parity; clocks, where they are counted,
// that it took if it had not yet.
__device__ __forceinline__ uint32_t WaitFor(uint32_t barrier, uint32_t parity, bool counts) {
  if (ptx::mbarrier_test_wait_parity(barrier, parity)) return 0;
  const uint32_t since = counts ? ptx::clock() : 0;
  Watchdog watchdog;
  while (!ptx::mbarrier_test_wait_parity(barrier, parity)) watchdog.Check();
  return counts ? ptx::clock() - since : 0;
}

__device__ __forceinline__ void SpinUntil(uint32_t since, uint32_t clocks) {
  while (ptx::clock() - since < clocks) {
  }
}

// Writes the moments of one of a trace's warps.
template <bool kTraced>
class Tracer {
 public:
  // `marks`: the calling thread is the one that reads.
  __device__ Tracer(const LabParams& p, int warp, bool marks) {
    if constexpr (kTraced) {
      if (marks && static_cast<int>(blockIdx.x) < p.trace_blocks) {
        at_ = p.trace + blockIdx.x * TraceWords(p.steps) + warp * kMoments;
      }
    }
  }

  __device__ __forceinline__ void Mark(int step, Moment moment) const {
    if constexpr (kTraced) {
      if (at_ == nullptr) return;
      at_[step * (kTraceWarps * kMoments) + static_cast<int>(moment)] = ptx::clock();
    }
  }

 private:
  uint32_t* at_ = nullptr;
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

// Copies by every thread of the producer's warps. A slot's barrier has one arrival of each when its
// copies land, and one more by which the first tells what it has noted.
class CpAsyncCopies {
 public:
  static constexpr int kIssuers = kProducerWarps * 32;
  static constexpr int kArrivals = kIssuers + 1;

  __device__ CpAsyncCopies(const LabParams& p, int thread)
      : p_(p), walk_(p.panels), first_(thread == 0), row_(thread / 8), chunk_(thread % 8) {
    from_ = p.array + (FirstRowOfStrip(p) + row_) * p.ld + chunk_ * 4;
  }

  __device__ __forceinline__ void Issue(uint32_t panel, uint32_t landed) {
    if (p_.loads) {
      const uint32_t* const from = from_ + walk_.Next() * kPanelRowWords;
#pragma unroll
      for (int i = 0; i < kPanelRows / kRows; ++i) {
        const int row = row_ + i * kRows;
        ptx::cp_async_cg_16(panel + row * 128 + ((chunk_ ^ (row & 7)) << 4),
                            from + i * kRows * p_.ld, 16);
      }
    }
    ptx::cp_async_mbarrier_arrive_noinc(landed);
    if (first_) ptx::mbarrier_arrive(landed);
  }
  // Nothing but threads uses the barriers, and they alone order reading and refilling.
  __device__ static void PublishBarriers() {}
  __device__ static void FenceReads() {}

 private:
  static constexpr int kRows =
      kIssuers / 8;  // that all threads copy at once, in chunks of 16 bytes

  const LabParams& p_;
  PanelWalk walk_;
  bool first_;
  int row_, chunk_;
  const uint32_t* from_;  // this thread's first chunk of the strip's first panel
};

// Copies by one thread.
class TmaCopies {
 public:
  static constexpr int kIssuers = 1;
  static constexpr int kArrivals = 1;

  __device__ TmaCopies(const LabParams& p, int /*thread*/)
      : p_(p), walk_(p.panels), row_(FirstRowOfStrip(p)) {}

  __device__ __forceinline__ void Issue(uint32_t panel, uint32_t landed) {
    if (p_.loads) {
      ptx::mbarrier_arrive_expect_tx(landed, kPanelBytes);
      ptx::cp_async_bulk_tensor_3d_load(panel, &p_.map, landed, walk_.Next() * kPanelRowWords, row_,
                                        0);
    } else {
      ptx::mbarrier_arrive(landed);
    }
  }
  __device__ static void PublishBarriers() { ptx::fence_mbarrier_init(); }
  // The copy engine writes by another proxy than the loads read by.
  __device__ static void FenceReads() { ptx::fence_proxy_async_shared(); }

 private:
  const LabParams& p_;
  PanelWalk walk_;
  int row_;
};

// A consumer warp's share of a panel: its sum, and `work` rounds behind it.
class WarpShare {
 public:
  __device__ WarpShare(int warp, int lane, int work) : work_(work) {
    for (int i = 0; i < kChunks; ++i) {
      const int index = warp * (kWarpWords / 4) + lane + i * 32, row = index / 8, chunk = index % 8;
      offsets_[i] = row * 128 + ((chunk ^ (row & 7)) << 4);
      factors_[i] = WordFactor(static_cast<uint32_t>(index) * 4);
    }
  }

  // By a whole warp.
  __device__ __forceinline__ uint32_t Sum(uint32_t panel) const {
    uint4 words[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) words[i] = ptx::ld_shared_v4(panel + offsets_[i]);
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const auto& [x, y, z, w] = words[i];
      // Of a word the factor is 2 more than of the one before it.
      sum += (x + y + z + w) * factors_[i] + 2 * y + 4 * z + 6 * w;
    }
    sum = __reduce_add_sync(0xffffffff, sum);
#pragma unroll 1
    for (int round = 0; round < work_; ++round) sum = sum * kWorkFactor + kWorkTerm;
    return sum;
  }

 private:
  static constexpr int kChunks = kWarpWords / 4 / 32;  // of 4 words, a lane

  int work_;
  uint32_t offsets_[kChunks], factors_[kChunks];
};
static_assert(WordFactor(1) == WordFactor(0) + 2);

// `thread`: of the producer's.
template <typename Copies, Fault kFault, bool kTraced>
__device__ void Produce(const LabParams& p, const Ring& ring, int thread) {
  if (thread >= Copies::kIssuers) return;
  const bool first = thread == 0;
  Copies copies(p, thread);
  const Tracer<kTraced> tracer(p, kTracedProducer, first);
  RingState state;
  for (int step = 0; step < p.steps; ++step) {
    tracer.Mark(step, Moment::kAcquire);
    WaitFor(ring.empty(state.slot), state.phase ^ 1, false);
    tracer.Mark(step, Moment::kFree);
    if (first) ptx::st_shared(ring.issued_at(state.slot), ptx::clock());
    copies.Issue(ring.panel(state.slot), ring.landed(state.slot));
    if constexpr (kFault == Fault::kIssueForCompletion) {
      ptx::mbarrier_arrive(ring.issued(state.slot));
    }
    tracer.Mark(step, Moment::kIssued);
    state.Advance(p.stages);
  }
}

// `thread`: of the consumers'.
template <typename Copies, Fault kFault, bool kTraced>
__device__ void Consume(const LabParams& p, const Ring& ring, int thread, bool relayed) {
  const int warp = thread / 32, lane = thread % 32;
  const bool first = thread == 0, last_warp = warp == kWarps - 1;
  const bool too_soon =  // gives the slot back before it reads it
      kFault == Fault::kNoReuse || (kFault == Fault::kReuseAfterSome && last_warp);
  const uint32_t delay = last_warp ? p.delay_clocks : 0;
  const WarpShare share(warp, lane, p.work);
  uint32_t* sums = p.sums == nullptr
                       ? nullptr
                       : p.sums + static_cast<int64_t>(blockIdx.x) * p.steps * kWarps + warp;
  const Tracer<kTraced> tracer(p, warp, lane == 0);
  const uint32_t ready = relayed ? ring.ready(0) : ring.landed(0);  // of slot 0
  const auto release = [&](int slot) {
    Copies::FenceReads();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(ring.empty(slot));
  };
  uint32_t waited = 0, sum_of_sums = 0;
  const uint32_t start = ptx::clock();
  RingState state;
  for (int step = 0; step < p.steps; ++step) {
    tracer.Mark(step, Moment::kWait);
    if constexpr (kFault == Fault::kIssueForCompletion) {
      WaitFor(ring.issued(state.slot), state.phase, false);
    } else if constexpr (kFault != Fault::kNoReady) {
      waited += WaitFor(ready + state.slot * 8, state.phase, first);
    }
    tracer.Mark(step, Moment::kReady);
    if (too_soon) release(state.slot);
    if (delay > 0) SpinUntil(ptx::clock(), delay);
    if (p.consumes) {
      const uint32_t sum = share.Sum(ring.panel(state.slot));
      sum_of_sums += sum;
      if (sums != nullptr) {
        if (lane == 0) *sums = sum;
        sums += kWarps;
      }
    }
    if constexpr (kFault == Fault::kNoReady || kFault == Fault::kIssueForCompletion) {
      waited += WaitFor(ready + state.slot * 8, state.phase, first);
    }
    tracer.Mark(step, Moment::kRead);
    if (!too_soon) release(state.slot);
    state.Advance(p.stages);
  }
  if (!first) return;
  BlockReport& report = p.reports[blockIdx.x];
  report.clocks = ptx::clock() - start;
  report.wait_ready = waited;
  report.sum = sum_of_sums;
}

// By one thread.
template <bool kTraced>
__device__ void Relay(const LabParams& p, const Ring& ring) {
  const Tracer<kTraced> tracer(p, kTracedRelay, true);
  RingState state;
  for (int step = 0; step < p.steps; ++step) {
    WaitFor(ring.landed(state.slot), state.phase, false);
    tracer.Mark(step, Moment::kLanded);
    if (p.loads) SpinUntil(ptx::ld_shared(ring.issued_at(state.slot)), p.load_clocks);
    ptx::mbarrier_arrive(ring.ready(state.slot));
    state.Advance(p.stages);
  }
}

template <typename Copies, Fault kFault, bool kTraced>
__global__ void __launch_bounds__(kThreads, 1) LabKernel(const __grid_constant__ LabParams p) {
  extern __shared__ __align__(1024) char smem[];
  const Ring ring(ptx::held(ptx::SharedAddress(smem)), p.stage_bytes);
  const auto thread = static_cast<int>(ptx::held(threadIdx.x));
  if (thread == 0) {
    for (int slot = 0; slot < p.stages; ++slot) {
      ptx::mbarrier_init(ring.landed(slot), Copies::kArrivals);
      ptx::mbarrier_init(ring.ready(slot), 1);
      ptx::mbarrier_init(ring.empty(slot), kWarps);
      ptx::mbarrier_init(ring.issued(slot), Copies::kIssuers);
    }
    Copies::PublishBarriers();
  }
  for (int slot = 0; slot < p.stages; ++slot) {
    for (int word = thread; word < kPanelWords; word += kThreads) {
      ptx::st_shared(ring.panel(slot) + word * 4, kPoison);
    }
  }
  Copies::FenceReads();
  __syncthreads();
  const bool relayed = kTraced || (p.loads && p.load_clocks > 0);
  if (thread < kWarps * 32) {
    Consume<Copies, kFault, kTraced>(p, ring, thread, relayed);
  } else if (thread < kRelayWarp * 32) {
    Produce<Copies, kFault, kTraced>(p, ring, thread - kWarps * 32);
  } else if (relayed && thread == kRelayWarp * 32) {
    Relay<kTraced>(p, ring);
  }
}

template <typename Copies>
const void* EntryOf(Fault fault, bool traced) {
  switch (fault) {
    case Fault::kNone:
      return traced ? reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kNone, true>)
                    : reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kNone, false>);
    case Fault::kNoReuse:
      return reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kNoReuse, false>);
    case Fault::kReuseAfterSome:
      return reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kReuseAfterSome, false>);
    case Fault::kNoReady:
      return reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kNoReady, false>);
    case Fault::kIssueForCompletion:
      return reinterpret_cast<const void*>(&LabKernel<Copies, Fault::kIssueForCompletion, false>);
  }
  return nullptr;
}

}  // namespace gemmd::lab
