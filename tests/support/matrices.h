// Operands for tests: seeded values, padding that would spread if it were read, and a result
// between guard bands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/core/gemm_types.h"

namespace gemmd {

// GEMMD_TEST_SEED where the environment has it, else a fixed number. Tests derive theirs from it
// and name it in SCOPED_TRACE(SeedTrace(seed)).
uint64_t TestSeed();
std::string SeedTrace(uint64_t seed);

// The value of a stored element; rounded to the matrix's type.
using ValueAt = std::function<double(int64_t index, int64_t row, int64_t col)>;

ValueAt Constant(double value);
// Uniform in [-1, 1); for i8 and i32 the integers -128 .. 127. Depends on seed and place alone.
ValueAt Uniform(DType type, uint64_t seed);

// Every byte that belongs to no element is 0xff: NaN in each floating-point type.
std::vector<std::byte> MakeMatrix(const MatrixLayout& layout, int64_t batch, DType type,
                                  const ValueAt& value);

// `layout` with `pad` elements after each row and each matrix.
MatrixLayout Padded(MatrixLayout layout, int64_t pad);

// A problem and its memory. Copies are deep.
class GemmData {
 public:
  // Uniform A, B, C and bias. ValidateProblem(problem) must be OK.
  GemmData(const GemmProblem& problem, uint64_t seed);

  const GemmProblem& problem() const { return problem_; }
  // Pointers into this object; null where the problem does not read the operand.
  HostOperands operands();

  void SetA(const ValueAt& value);
  void SetB(const ValueAt& value);
  void SetC(const ValueAt& value);
  void SetBias(const ValueAt& value);  // as one row of bias_length() columns

  // Sets every byte of the result. It starts as 0xff: NaN, or -1.
  void PoisonResult(std::byte value);
  std::vector<std::byte> result() const;
  double ResultAt(int64_t element) const;
  // Whether nothing was written just before or after the result.
  bool GuardsIntact() const;

 private:
  GemmProblem problem_;
  std::vector<std::byte> a_, b_, c_, bias_;
  std::vector<std::byte> guarded_result_;
};

}  // namespace gemmd
