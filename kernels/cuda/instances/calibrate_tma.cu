// What calibration times of the TMA kernels' parts: their ring, loading alone, and wgmma,
// multiplying alone.
#include "kernels/cuda/calibrate_kernels.h"
#include "kernels/cuda/device/gemm_tma_wgmma.cuh"
#include "kernels/cuda/device/ptx/sm90.cuh"
#include "kernels/cuda/device/ptx/wgmma.cuh"
#include "kernels/cuda/device/tma_pipeline.cuh"

namespace gemmd {
namespace {

constexpr int kProducerThreads = 32;
static_assert(kLoadTmaMaxStages * TmaRing::kBarrierBytes <= kLoadTmaBarrierBytes);
static_assert(kLoadTmaBarrierBytes % kSwizzlePeriod == 0 &&
              kLoadTmaPanelBytes % kSwizzlePeriod == 0);

__global__ void __launch_bounds__(kLoadTmaThreads, 1)
    LoadTma(const __grid_constant__ LoadParams p) {
  extern __shared__ __align__(1024) char smem[];
  const uint32_t barriers = ptx::SharedAddress(smem);
  const uint32_t slots = barriers + kLoadTmaBarrierBytes;
  const TmaRing ring(barriers, p.stages, 1);
  if (threadIdx.x == 0) {
    ring.Init((kLoadTmaThreads - kProducerThreads) / 32);
    ptx::prefetch_tensormap(&p.map);
  }
  __syncthreads();
  RingState state;
  WaitCounter not_counted;
  if (threadIdx.x >= kProducerThreads) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int step = 0; step < p.steps; ++step) {
      ring.ConsumerWait(state, not_counted);
      // No lane waits any more for what the next use of the slot ends.
      __syncwarp();
      ring.ConsumerRelease(state.slot, lane);
      state.Advance(p.stages);
    }
  } else if (threadIdx.x == 0) {
    int panel = static_cast<int>(int64_t{p.panels} * blockIdx.x / gridDim.x);
    for (int step = 0; step < p.steps; ++step) {
      const uint32_t barrier = ring.ProducerAcquire(state, kLoadTmaPanelBytes, not_counted);
      ptx::cp_async_bulk_tensor_3d_load(slots + state.slot * kLoadTmaPanelBytes, &p.map, barrier, 0,
                                        panel * kLoadTmaBoxRows, 0);
      if (++panel == p.panels) panel = 0;
      state.Advance(p.stages);
    }
  }
}

constexpr int kRows = 64, kColumns = 256, kDepth = 64;  // of a warpgroup, in a step
constexpr int kGroups = kMultiplyWgmmaThreads / kWarpgroup;
using PanelA = TmaPanel<kGroups * kRows, kDepth, true>;
using PanelB = TmaPanel<kColumns, kDepth, true>;
static_assert(PanelA::kBytes + PanelB::kBytes == kMultiplyWgmmaSmemBytes);
static_assert(kMultiplyWgmmaFlopsPerStep == 2.0 * kGroups * kRows * kColumns * kDepth);

__global__ void __launch_bounds__(kMultiplyWgmmaThreads, 1)
    MultiplyWgmma(const __grid_constant__ MultiplyParams p) {
  extern __shared__ __align__(1024) char smem[];
  // Pairs of small finite numbers.
  for (int i = static_cast<int>(threadIdx.x); i < kMultiplyWgmmaSmemBytes / 4; i += blockDim.x) {
    reinterpret_cast<uint32_t*>(smem)[i] = 0x3f803f80 + i % 64;
  }
  ptx::fence_proxy_async_shared();
  __syncthreads();
  const int group = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  const uint32_t panels = ptx::SharedAddress(smem);
  const uint32_t low_a = PanelA::Low(panels) + PanelA::Distance(group * kRows, 0);
  const uint32_t low_b = PanelB::Low(panels + PanelA::kBytes);
  float acc[kColumns / 2];
  for (int step = 0; step < p.steps; ++step) {
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      ptx::wgmma_m64k16<__nv_bfloat16, kColumns, false, false>(
          acc, ptx::Join(low_a + PanelA::Distance(0, k), PanelA::kHigh),
          ptx::Join(low_b + PanelB::Distance(0, k), PanelB::kHigh), step > 0 || k > 0);
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<1>();
  }
  ptx::wgmma_wait_group<0>();
  if (p.sums == nullptr) return;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sum += acc[i];
  p.sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace

const void* LoadTmaEntry() { return reinterpret_cast<const void*>(&LoadTma); }
const void* MultiplyWgmmaEntry() { return reinterpret_cast<const void*>(&MultiplyWgmma); }

}  // namespace gemmd
