// The shapes to measure, as lines of text:
//
//   # comment
//   name,dtype,layout,M,N,K[,BATCH]
//
// layout is op(A)op(B) on row-major storage: N as stored, T transposed. BATCH products, 1 where
// left out, lie one after another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"

namespace gemmd::bench {

struct Shape {
  std::string name;    // unique within a dtype
  std::string dtype;   // bf16, fp16, fp32 (IEEE), tf32, fp64, fp8 or int8
  std::string layout;  // NN, NT, TN or TT
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;

  // The class of similar shapes: the name up to its first dash.
  std::string family() const { return name.substr(0, name.find('-')); }
};

// Blank lines and lines that start with # are left out; a carriage return at a line's end is
// dropped. INVALID_ARGUMENT naming line, field, value and limit for anything else that is not a
// shape, for a shape that is there twice, and for a text without shapes.
StatusOr<std::vector<Shape>> ParseShapes(std::string_view text);

// Those that `rows` picks, in the order of `shapes`; all when `rows` is empty. A pick is NAME, or
// NAME:DTYPE. INVALID_ARGUMENT for a pick that no shape meets.
StatusOr<std::vector<Shape>> SelectShapes(const std::vector<Shape>& shapes,
                                          const std::vector<std::string>& rows);

// SelectShapes of a file's text; INVALID_ARGUMENT too when it cannot be read.
StatusOr<std::vector<Shape>> ReadShapes(const std::string& file,
                                        const std::vector<std::string>& rows);

// The product with packed operands, D in the operands' type; nullopt for a dtype that no kernel
// takes.
std::optional<GemmProblem> ProblemOf(const Shape& shape);

// "a,b" -> {"a", "b"}; a trailing or doubled separator gives an empty field.
std::vector<std::string_view> Split(std::string_view text, char separator);

}  // namespace gemmd::bench
