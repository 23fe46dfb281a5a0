#include "kernels/cuda/device/gemm_cp_async_mma.cuh"
#include "kernels/lab/wait_trace.cuh"

namespace gemmd::lab {

const void* TracedEntry(int row) {
  constexpr int kRow = RowByName("cp_async_128x128x64");
  if (row != kRow) return TracedTmaEntry(row);
  return reinterpret_cast<const void*>(
      &GemmCpAsyncMma<kRow, __nv_bfloat16, false, true, TracedProbe>);
}

}  // namespace gemmd::lab
