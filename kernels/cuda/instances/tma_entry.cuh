// The eight kernels of one TMA row: two types, four transposes.
#pragma once

#include "kernels/cuda/device/gemm_tma_wgmma.cuh"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd {

template <int kRow, typename T>
const void* TmaEntryOfType(Op op_a, Op op_b) {
  const bool trans_a = op_a == Op::kT, trans_b = op_b == Op::kT;
  if (!trans_a && !trans_b)
    return reinterpret_cast<const void*>(&GemmTmaWgmma<kRow, T, false, false>);
  if (!trans_a) return reinterpret_cast<const void*>(&GemmTmaWgmma<kRow, T, false, true>);
  if (!trans_b) return reinterpret_cast<const void*>(&GemmTmaWgmma<kRow, T, true, false>);
  return reinterpret_cast<const void*>(&GemmTmaWgmma<kRow, T, true, true>);
}

template <int kRow>
const void* TmaEntry(DType type, Op op_a, Op op_b) {
  switch (type) {
    case DType::kF16: return TmaEntryOfType<kRow, __half>(op_a, op_b);
    case DType::kBF16: return TmaEntryOfType<kRow, __nv_bfloat16>(op_a, op_b);
    default: return nullptr;
  }
}

}  // namespace gemmd
