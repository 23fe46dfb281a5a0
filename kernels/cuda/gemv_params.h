// The GEMV kernels (instances/gemv.cu) and what they are given.
#pragma once

#include <cstdint>

#include "kernels/core/gemm_types.h"
#include "kernels/cuda/gemm_params.h"

namespace gemmd {

// The same product twice: `gemm` is what its results are finished by, the rest is the operands by
// the roles that plan/gemv_shape.h gives them.
struct GemvParams {
  GemmParams gemm;
  const void* matrix = nullptr;
  const void* vectors = nullptr;
  int64_t matrix_ld = 0, vectors_ld = 0;          // elements
  int64_t matrix_stride = 0, vectors_stride = 0;  // elements, 0 = broadcast
  int lines = 0;                                  // of the matrix
  int count = 0;                                  // of the vectors
  bool vectors_are_rows = false;                  // of D
  int warps_per_line = 1;                         // a power of 2
  int lanes_across = 1;                           // a power of 2
  int lines_of_block = 0;
};

// The entry point for operands of `type` and 1, 2 or up to 4 vectors; null when there is none.
const void* GemvEntry(DType type, int vectors, bool matrix_k_contiguous, bool vectors_k_contiguous);

}  // namespace gemmd
