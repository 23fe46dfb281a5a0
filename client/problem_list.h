// Problems as a command line or a file names them: one shape, ranges of extents, rows of CSV.
// INVALID_ARGUMENT with the option or the line, the value and the limit. The C of a problem is
// never read: beta is 0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"

namespace gemmd {

inline constexpr int64_t kMaxProblems = 10000;  // of one list

struct NamedProblem {
  std::string name;  // empty: it has none
  GemmProblem problem;
};

// What a shape does not say itself.
struct ShapeTypes {
  DType type = DType::kBF16;  // of A and B
  Op op_a = Op::kN, op_b = Op::kN;
};

DType DefaultResultType(DType type_a);

// "bf16 NT 4096x7168x2048", with what is not the default behind it: " batch 4", " -> f32", " tf32".
// Two problems of which alike can be multiplied alike have the same.
std::string ProblemText(const GemmProblem& problem);

double Tflops(const GemmProblem& problem, double seconds);           // 0 where there is no time
std::string TflopsText(const GemmProblem& problem, double seconds);  // "0.123", "456.7"

// "MxNxK".
StatusOr<NamedProblem> ParseShape(std::string_view text, const ShapeTypes& types);

// Extents as `option` lists them, in that order: integers from 1 on, START:END:+STEP and
// START:END:*FACTOR, with commas between. At most kMaxProblems.
StatusOr<std::vector<int64_t>> ParseExtents(const std::string& option, std::string_view text);

// Every m with every n with every k; k changes fastest.
StatusOr<std::vector<NamedProblem>> CrossExtents(const std::vector<int64_t>& m,
                                                 const std::vector<int64_t>& n,
                                                 const std::vector<int64_t>& k,
                                                 const ShapeTypes& types);

// Lines of "name,dtype,layout,M,N,K[,BATCH]"; empty ones and those that start with # do not count.
// dtype is a type's name, or fp16, fp32, fp64, tf32, fp8 (e4m3) or int8. `path` is for messages.
StatusOr<std::vector<NamedProblem>> ParseProblemCsv(const std::string& path, std::string_view text);

// OUT_OF_RANGE where `count` is above kMaxProblems.
Status CheckProblemCount(int64_t count);

}  // namespace gemmd
