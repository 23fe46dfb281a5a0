#include "kernels/cuda/device/gemv.cuh"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd {
namespace {

static_assert(Threads(kKernelTable[RowByName("gemv")].config) == kGemvThreads);

template <typename T, int kVectors>
const void* EntryOf(bool matrix_k_contiguous, bool vectors_k_contiguous) {
  if (matrix_k_contiguous && vectors_k_contiguous)
    return reinterpret_cast<const void*>(&Gemv<T, kVectors, true, true>);
  if (matrix_k_contiguous) return reinterpret_cast<const void*>(&Gemv<T, kVectors, true, false>);
  if (vectors_k_contiguous) return reinterpret_cast<const void*>(&Gemv<T, kVectors, false, true>);
  return reinterpret_cast<const void*>(&Gemv<T, kVectors, false, false>);
}

template <typename T>
const void* EntryOfType(int vectors, bool matrix_k_contiguous, bool vectors_k_contiguous) {
  switch (vectors) {
    case 1: return EntryOf<T, 1>(matrix_k_contiguous, vectors_k_contiguous);
    case 2: return EntryOf<T, 2>(matrix_k_contiguous, vectors_k_contiguous);
    case kMostVectors: return EntryOf<T, kMostVectors>(matrix_k_contiguous, vectors_k_contiguous);
    default: return nullptr;
  }
}

}  // namespace

const void* GemvEntry(DType type, int vectors, bool matrix_k_contiguous,
                      bool vectors_k_contiguous) {
  switch (type) {
    case DType::kF16:
      return EntryOfType<__half>(vectors, matrix_k_contiguous, vectors_k_contiguous);
    case DType::kBF16:
      return EntryOfType<__nv_bfloat16>(vectors, matrix_k_contiguous, vectors_k_contiguous);
    default: return nullptr;
  }
}

// For a product with the most rows that there may be: A is the vectors.
template <>
const void* KernelEntry<RowByName("gemv")>(DType type, Op op_a, Op op_b) {
  return GemvEntry(type, kMostVectors, op_b == Op::kT, op_a == Op::kN);
}

}  // namespace gemmd
