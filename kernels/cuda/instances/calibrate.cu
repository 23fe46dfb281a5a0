// What calibration times of the cp.async kernels' parts: their ring, loading alone, and mma.sync,
// multiplying alone.
#include "kernels/cuda/calibrate_kernels.h"
#include "kernels/cuda/device/pipeline.cuh"
#include "kernels/cuda/device/ptx/ptx.cuh"
#include "kernels/cuda/device/stall_probe.cuh"

namespace gemmd {
namespace {

constexpr int kCopiesOfThread = kLoadCpAsyncPanelBytes / (kLoadCpAsyncThreads * 16);
static_assert(kCopiesOfThread * kLoadCpAsyncThreads * 16 == kLoadCpAsyncPanelBytes);

__global__ void __launch_bounds__(kLoadCpAsyncThreads, 1)
    LoadCpAsync(const __grid_constant__ LoadParams p) {
  extern __shared__ __align__(128) char smem[];
  const uint32_t ring = ptx::SharedAddress(smem) + threadIdx.x * 16;
  const char* const data = static_cast<const char*>(p.data) + threadIdx.x * 16;
  int panel = static_cast<int>(int64_t{p.panels} * blockIdx.x / gridDim.x);
  StallProbe probe(nullptr);
  CpAsyncPipeline pipeline(p.stages);
  RunPipeline(
      pipeline, probe, p.steps,
      [&](int slot, int) {
        const uint32_t to = ring + slot * kLoadCpAsyncPanelBytes;
        const char* const from = data + int64_t{panel} * kLoadCpAsyncPanelBytes;
#pragma unroll
        for (int copy = 0; copy < kCopiesOfThread; ++copy) {
          constexpr int kPass = kLoadCpAsyncThreads * 16;
          ptx::cp_async_cg_16(to + copy * kPass, from + copy * kPass, 16);
        }
        if (++panel == p.panels) panel = 0;
      },
      [](int) {});
}

constexpr int kFragsM = 4, kFragsN = 4;  // of a warp: 16 products that do not wait for each other
constexpr int kMmaWarps = kMultiplyMmaThreads / 32;
static_assert(kMultiplyMmaFlopsPerStep ==
              double{kMmaWarps} * kFragsM * kFragsN * (2.0 * 16 * 8 * 16));

__global__ void __launch_bounds__(kMultiplyMmaThreads, 1)
    MultiplyMma(const __grid_constant__ MultiplyParams p) {
  // Pairs of small finite numbers.
  uint32_t a[kFragsM][4], b[kFragsN][2];
#pragma unroll
  for (int i = 0; i < kFragsM; ++i) {
#pragma unroll
    for (int r = 0; r < 4; ++r) a[i][r] = 0x3f803f80 + threadIdx.x + 4 * i + r;
  }
#pragma unroll
  for (int j = 0; j < kFragsN; ++j) {
    b[j][0] = 0x3f803f80 + threadIdx.x + 2 * j, b[j][1] = b[j][0] + 1;
  }
  float acc[kFragsM][kFragsN][4] = {};
#pragma unroll 1
  for (int step = 0; step < p.steps; ++step) {
#pragma unroll
    for (int i = 0; i < kFragsM; ++i) {
#pragma unroll
      for (int j = 0; j < kFragsN; ++j) {
        ptx::mma_m16n8k16<__nv_bfloat16>(acc[i][j], a[i], b[j][0], b[j][1]);
      }
    }
  }
  if (p.sums == nullptr) return;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kFragsM; ++i) {
#pragma unroll
    for (int j = 0; j < kFragsN; ++j) {
#pragma unroll
      for (int r = 0; r < 4; ++r) sum += acc[i][j][r];
    }
  }
  p.sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace

const void* LoadCpAsyncEntry() { return reinterpret_cast<const void*>(&LoadCpAsync); }
const void* MultiplyMmaEntry() { return reinterpret_cast<const void*>(&MultiplyMma); }

}  // namespace gemmd
