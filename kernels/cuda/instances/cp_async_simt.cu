#include "kernels/cuda/device/gemm_cp_async_simt.cuh"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd {
namespace {

template <int kRow>
const void* SimtEntry(DType type, Op op_a, Op op_b) {
  if (type != DType::kF32) return nullptr;
  const bool trans_a = op_a == Op::kT, trans_b = op_b == Op::kT;
  if (!trans_a && !trans_b)
    return reinterpret_cast<const void*>(&GemmCpAsyncSimt<kRow, false, false>);
  if (!trans_a) return reinterpret_cast<const void*>(&GemmCpAsyncSimt<kRow, false, true>);
  if (!trans_b) return reinterpret_cast<const void*>(&GemmCpAsyncSimt<kRow, true, false>);
  return reinterpret_cast<const void*>(&GemmCpAsyncSimt<kRow, true, true>);
}

}  // namespace

template <>
const void* KernelEntry<RowByName("simt_128x128x16")>(DType type, Op op_a, Op op_b) {
  return SimtEntry<RowByName("simt_128x128x16")>(type, op_a, op_b);
}
template <>
const void* KernelEntry<RowByName("simt_64x64x16")>(DType type, Op op_a, Op op_b) {
  return SimtEntry<RowByName("simt_64x64x16")>(type, op_a, op_b);
}

}  // namespace gemmd
