// What a TMA kernel is given: the common parameters and the maps of its bulk tensor copies.
#pragma once

#include <cuda.h>

#include "kernels/cuda/gemm_params.h"

namespace gemmd {

// Three dimensions each: a row's elements, rows, matrices. Boxes are one row of 128 bytes wide.
struct TmaParams {
  CUtensorMap a, b, d;
  GemmParams gemm;
};

}  // namespace gemmd
