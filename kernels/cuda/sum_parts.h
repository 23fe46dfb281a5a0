// The kernel that adds up the parts of a split-K (instances/sum_parts.cu).
#pragma once

#include <cstdint>

#include "kernels/core/gemm_types.h"
#include "kernels/cuda/gemm_params.h"

namespace gemmd {

inline constexpr int kSumThreads = 128;
inline constexpr int kSumPartsOfLane = 4;  // loads that one lane has under way

// `parts` holds gemm.parts matrices of m x n for each product, one after another.
struct SumParams {
  GemmParams gemm;
  const float* parts = nullptr;
  int64_t ld = 0, stride = 0;  // elements, of a row and of a part; multiples of 4
  int log2_lanes = 0;          // neighbouring threads that share one run of 4 columns: up to a warp
};

// The entry point for C, bias and D of `type`; null when there is none.
const void* SumPartsEntry(DType type);

}  // namespace gemmd
