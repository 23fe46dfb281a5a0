// D = act(alpha * (the sum of a product's parts) + beta * C + bias): the second half of a split-K
// whose parts are no cluster.
#include "kernels/cuda/device/epilogue.cuh"
#include "kernels/cuda/device/ptx/sm90.cuh"
#include "kernels/cuda/sum_parts.h"

namespace gemmd {
namespace {

// Lanes that share a run's parts out have all of its loads under way at once. Each adds up its own
// in their order; then the sums meet pairwise: the same bits every time.
//
// T is the type of C, bias and D. Any grid; walks rows of all products in runs of 4 columns.
template <typename T>
__global__ void __launch_bounds__(kSumThreads) SumParts(const __grid_constant__ SumParams params) {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
#endif
  const GemmParams& p = params.gemm;
  const int64_t runs = (p.n + 3) / 4;
  const int64_t items = runs * p.m * p.batch;
  const int lanes = params.lanes, runs_of_block = static_cast<int>(blockDim.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int first = lane * p.parts / lanes, last = (lane + 1) * p.parts / lanes;
  // All lanes of a warp take the same turns: the shuffles need them.
  for (int64_t turn = int64_t{blockIdx.x} * runs_of_block; turn < items;
       turn += int64_t{gridDim.x} * runs_of_block) {
    const int64_t item = turn + threadIdx.x / lanes;
    const int64_t row = min(item, items - 1) / runs, batch = row / p.m, in_matrix = row % p.m;
    const int col = static_cast<int>(min(item, items - 1) % runs) * 4;
    const float* from =
        params.parts + batch * p.parts * params.stride + in_matrix * params.ld + col;
    float x[4] = {};
#pragma unroll 4
    for (int part = first; part < last; ++part) {
      const float4 v = __ldcg(reinterpret_cast<const float4*>(from + part * params.stride));
      x[0] += v.x, x[1] += v.y, x[2] += v.z, x[3] += v.w;
    }
    for (int distance = 1; distance < lanes; distance *= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] += __shfl_xor_sync(0xffffffff, x[i], distance);
    }
    if (lane == 0 && item < items) {
      FinishRun<T>(p, batch, static_cast<int>(in_matrix), col, x);
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
