#include "kernels/cuda/device/gemm_tma_wgmma.cuh"
#include "kernels/lab/wait_trace.cuh"

namespace gemmd::lab {
namespace {

template <int kRow>
const void* Entry() {
  return reinterpret_cast<const void*>(
      &GemmTmaWgmma<kRow, __nv_bfloat16, false, true, TracedWaits>);
}

}  // namespace

const void* TracedTmaEntry(int row) {
  constexpr int kTogether = RowByName("tma_wgmma_128x128x64");
  constexpr int kInTurn = RowByName("tma_pingpong_128x128x64");
  if (row == kTogether) return Entry<kTogether>();
  if (row == kInTurn) return Entry<kInTurn>();
  return nullptr;
}

}  // namespace gemmd::lab
