// Descriptions of matrices for the copy engine (CUtensorMap).
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"

namespace gemmd {

// `matrices` of `rows` x `cols` elements in device memory, read or written in boxes of box_rows
// rows and box_row_bytes of columns, swizzled over those bytes. Elements outside read as 0 and are
// not written.
struct TensorMapSpec {
  const void* base = nullptr;  // 16-byte aligned
  DType type = DType::kBF16;
  int64_t rows = 0, cols = 0, matrices = 1;
  int64_t ld = 0, matrix_stride = 0;  // elements; multiples of 16 bytes
  int box_rows = 0;                   // 1 to 256
  int box_row_bytes = 128;            // or 64
};

// INTERNAL when the driver refuses the description; UNAVAILABLE when it has no such call.
StatusOr<CUtensorMap> MakeTensorMap(const TensorMapSpec& spec);

}  // namespace gemmd
