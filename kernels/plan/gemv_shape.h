// How the GEMV kernel sees a product: a matrix of lines, each of which is multiplied with a few
// vectors, and how blocks share that out.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/core/gemm_types.h"
#include "kernels/plan/kernel_config.h"

namespace gemmd {

inline constexpr int kMostVectors = 4;
inline constexpr int kGemvWarps = 16;

// Where K runs along a stored row, a line is a row and a warp takes this many at a time. Else a
// thread takes the lines of one access of 16 bytes.
inline constexpr int kGemvRows = 2;
inline constexpr int kGemvColumns = 8;
// Neighbouring threads with neighbouring columns: pieces of 64 or 128 bytes of a stored row.
inline constexpr int kFewestLanesAcross = 4, kMostLanesAcross = 8;

// Blocks on an SM at once: two of those whose loads under way fit the registers twice.
constexpr int GemvBlocksPerSm(int vectors, bool matrix_k_contiguous, bool vectors_k_contiguous) {
  return vectors <= 2 && matrix_k_contiguous && vectors_k_contiguous ? 2 : 1;
}

constexpr bool HasFewVectors(const GemmProblem& p) {
  return p.m <= kMostVectors || p.n <= kMostVectors;
}

struct GemvShape {
  bool vectors_are_rows = false;  // of op(A) and D; else they are columns of op(B) and D
  bool matrix_k_contiguous = false, vectors_k_contiguous = false;
  int vectors = 0;
  int64_t lines = 0;
  // The rest of the block's threads share out K.
  int warps_per_line = 1;               // where K is contiguous
  int lanes_across = kMostLanesAcross;  // where it is not

  constexpr int lines_of_block() const {
    return matrix_k_contiguous ? kGemvWarps / warps_per_line * kGemvRows
                               : lanes_across * kGemvColumns;
  }
  // There is no kernel for three: one of four runs.
  constexpr int vectors_of_kernel() const { return vectors == 3 ? 4 : vectors; }
  constexpr int blocks_per_sm() const {
    return GemvBlocksPerSm(vectors, matrix_k_contiguous, vectors_k_contiguous);
  }
  constexpr int64_t blocks() const { return CeilDiv(lines, lines_of_block()); }  // of one product
};

// Precondition: HasFewVectors(p). Blocks get fewer lines as long as all of them can be resident: a
// second round of blocks costs more than idle SMs.
constexpr GemvShape GemvShapeOf(const GemmProblem& p, int sm_count) {
  GemvShape shape;
  const bool a_k_contiguous = p.op_a == Op::kN, b_k_contiguous = p.op_b == Op::kT;
  shape.vectors_are_rows = p.m <= p.n;
  shape.matrix_k_contiguous = shape.vectors_are_rows ? b_k_contiguous : a_k_contiguous;
  shape.vectors_k_contiguous = shape.vectors_are_rows ? a_k_contiguous : b_k_contiguous;
  shape.vectors = static_cast<int>(std::min(p.m, p.n));
  shape.lines = std::max(p.m, p.n);
  const int64_t room = int64_t{sm_count} * shape.blocks_per_sm() / p.batch;
  if (shape.matrix_k_contiguous) {
    while (shape.warps_per_line < kGemvWarps && 2 * shape.blocks() <= room) {
      shape.warps_per_line *= 2;
    }
  } else {
    while (shape.lanes_across > kFewestLanesAcross && 2 * shape.blocks() <= room) {
      shape.lanes_across /= 2;
    }
  }
  return shape;
}

}  // namespace gemmd
