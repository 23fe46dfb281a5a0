// Problems for tests that need no operands.
#pragma once

#include <cstdint>

#include "kernels/core/gemm_types.h"

namespace gemmd {

// Packed, batch 1, of one type.
inline GemmProblem Problem(int64_t m, int64_t n, int64_t k, DType type = DType::kBF16) {
  GemmProblem p;
  p.m = m, p.n = n, p.k = k;
  p.type_a = p.type_b = p.type_d = type;
  return WithPackedLayouts(p);
}

}  // namespace gemmd
