// Problems as a command line names them: one shape, ranges of extents. INVALID_ARGUMENT with the
// option, the value and the limit. The C of a problem is never read: beta is 0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/gemm_types.h"
#include "kernels/core/shape_list.h"
#include "kernels/core/status.h"

namespace gemmd {

inline constexpr int64_t kMaxProblems = 10000;  // of one list

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

// OUT_OF_RANGE where `count` is above kMaxProblems.
Status CheckProblemCount(int64_t count);

}  // namespace gemmd
