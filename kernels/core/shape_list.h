// Problems as lines of text:
//
//   # comment
//   name,dtype,layout,M,N,K[,BATCH]
//
// dtype is a type's name, or fp16, fp32, fp64, tf32, fp8 (e4m3) or int8, and that of A and B.
// layout is op(A)op(B) on row-major storage: N as stored, T transposed. BATCH products, 1 where
// left out, lie one after another. Lines without text, and blanks around a cell, do not count.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"

namespace gemmd {

struct NamedProblem {
  std::string name;  // empty: it has none
  GemmProblem problem;
  std::string dtype{};  // as a list has it; empty: it is of none
};

// What extents do not say.
struct ShapeTypes {
  DType type = DType::kBF16;  // of A and B
  Op op_a = Op::kN, op_b = Op::kN;
};

// Of packed operands, with D in DefaultResultType() and beta 0. Refused as ValidateProblem() says.
StatusOr<GemmProblem> PackedProblem(int64_t m, int64_t n, int64_t k, const ShapeTypes& types,
                                    int64_t batch = 1);

// A whole number from 1 to kMaxExtent. INVALID_ARGUMENT with field, value and limits.
StatusOr<int64_t> ParseExtent(std::string_view field, std::string_view text);

// INVALID_ARGUMENT with `source` and the line, the field, its value and its limits, for anything
// that is not such a line, and for a text without any.
StatusOr<std::vector<NamedProblem>> ParseShapeList(const std::string& source,
                                                   std::string_view text);

}  // namespace gemmd
