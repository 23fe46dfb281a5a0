// D = act(alpha * (the sum of a product's parts) + beta * C + bias): the second half of a split-K.
#include "kernels/cuda/device/epilogue.cuh"
#include "kernels/cuda/device/ptx/sm90.cuh"
#include "kernels/cuda/sum_parts.h"

namespace gemmd {
namespace {

__device__ __forceinline__ void WaitForParts() {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
#endif
}

// Lanes that share a run's parts out have all of its loads under way at once. Each adds up its own
// in their order; then the sums meet pairwise: the same bits every time.
//
// T is the type of C, bias and D. Any grid; walks rows of all products in runs of 4 columns.
template <typename T>
__global__ void __launch_bounds__(kSumThreads) SumParts(const __grid_constant__ SumParams params) {
  const GemmParams& p = params.gemm;
  // The workspace bounds all counts.
  const unsigned runs = (p.n + 3) / 4, items = runs * p.m * p.batch;
  const int lanes = 1 << params.log2_lanes;
  const unsigned runs_of_block = blockDim.x >> params.log2_lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int first = lane * p.parts >> params.log2_lanes;
  const int last = (lane + 1) * p.parts >> params.log2_lanes;
  bool waited = false;
  // All lanes of a warp take the same turns: the shuffles need them.
  for (unsigned turn = blockIdx.x * runs_of_block; turn < items;
       turn += gridDim.x * runs_of_block) {
    const unsigned item = turn + (threadIdx.x >> params.log2_lanes);
    const unsigned row = min(item, items - 1) / runs, batch = row / p.m;
    const int in_matrix = static_cast<int>(row - batch * p.m);
    const int col = static_cast<int>(min(item, items - 1) - row * runs) * 4;
    const float* from =
        params.parts + batch * p.parts * params.stride + in_matrix * params.ld + col;
    if (!waited) {  // all of the above while the parts are still being computed
      WaitForParts();
      waited = true;
    }
    float x[4] = {};
#pragma unroll 1
    for (int part = first; part < last; part += kSumPartsOfLane) {
      float4 v[kSumPartsOfLane];
#pragma unroll
      for (int i = 0; i < kSumPartsOfLane; ++i) {
        v[i] = float4{};
        if (part + i < last) {
          v[i] = ptx::ld_global_cg_v4(from + (part + i) * params.stride);
        }
      }
#pragma unroll
      for (int i = 0; i < kSumPartsOfLane; ++i) {
        x[0] += v[i].x, x[1] += v[i].y, x[2] += v[i].z, x[3] += v[i].w;
      }
    }
    for (int distance = 1; distance < lanes; distance *= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] += __shfl_xor_sync(0xffffffff, x[i], distance);
    }
    if (lane == 0 && item < items) {
      FinishRun<T>(p, batch, in_matrix, col, x);
    }
  }
}

}  // namespace

const void* SumPartsEntry(DType type) {
  switch (type) {
    case DType::kF16: return reinterpret_cast<const void*>(&SumParts<__half>);
    case DType::kBF16: return reinterpret_cast<const void*>(&SumParts<__nv_bfloat16>);
    case DType::kF32: return reinterpret_cast<const void*>(&SumParts<float>);
    default: return nullptr;
  }
}

}  // namespace gemmd
