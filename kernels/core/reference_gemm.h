// The oracle: a GEMM in double, three loops, written for clearness and independent of every kernel
// and library that it checks. Used by self-checks at start, by `gemmctl check` and by the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/gemm_types.h"

namespace gemmd {

// act(alpha * op(A) op(B) + beta * C + bias) in double, before rounding to type_d: packed
// (batch, m, n). operands.d is not touched.
std::vector<double> ReferenceGemm(const GemmProblem& problem, const HostOperands& operands);

// sum over k of |alpha a b| + |beta c| + |bias| for each element: the magnitude that rounding
// errors scale with. Packed as above.
std::vector<double> ReferenceMagnitude(const GemmProblem& problem, const HostOperands& operands);

struct Mismatch {
  bool ok = true;
  int64_t elements = 0;  // compared
  int64_t wrong_elements = 0;
  int64_t first_wrong = -1;                   // packed index
  double expected = 0, got = 0, allowed = 0;  // of the first wrong element
  double worst_ratio = 0;                     // largest |error| / allowed over all elements
  std::string ToString() const;  // "3 of 64 elements wrong; first at [0, 1, 7]: expected ..."
  int64_t batch_index = 0, row = 0, col = 0;  // of the first wrong element
};

// Compares a result in operands.d with the reference. An element is right when
//   |d - ref| <= u_d |ref| + (1 + act_slope) (2 + sqrt(k)) u_acc magnitude + smallest subnormal of
//   d
// with u_d the rounding unit of type_d and u_acc that of the accumulator (2^-24 for fp32, 2^-53 for
// fp64, 0 for int8, 2^-11 for operands in tf32); NaN must meet NaN and infinity the same infinity,
// and a reference that rounds past type_d's largest value must be infinity. An activation acts on
// the accumulator's error, so that its own, small beside that, has no term here: tests of its tail
// compare values without a product.
Mismatch CompareWithReference(const GemmProblem& problem, const HostOperands& operands);

}  // namespace gemmd
