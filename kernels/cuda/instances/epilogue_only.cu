// D = act(beta * C + bias): what is left of a product with alpha = 0 or K = 0.
#include "kernels/cuda/device/epilogue.cuh"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd {
namespace {

// T is the type of C, bias and D. Any grid; walks rows of all products in runs of 4 columns.
template <typename T>
__global__ void __launch_bounds__(256) EpilogueOnly(const __grid_constant__ GemmParams p) {
  const int64_t runs = (p.n + 3) / 4;
  const int64_t items = runs * p.m * p.batch;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < items; item += step) {
    const int64_t row = item / runs;
    float x[4] = {};
    FinishRun<T>(p, row / p.m, static_cast<int>(row % p.m), static_cast<int>(item % runs) * 4, x);
  }
}

}  // namespace

// `type` is that of D here.
template <>
const void* KernelEntry<RowByName("epilogue_only")>(DType type, Op, Op) {
  switch (type) {
    case DType::kF16: return reinterpret_cast<const void*>(&EpilogueOnly<__half>);
    case DType::kBF16: return reinterpret_cast<const void*>(&EpilogueOnly<__nv_bfloat16>);
    case DType::kF32: return reinterpret_cast<const void*>(&EpilogueOnly<float>);
    default: return nullptr;
  }
}

}  // namespace gemmd
