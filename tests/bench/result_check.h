// Whether a result too large to compute twice is right: a seeded sample of its rows and columns
// against the double-precision reference, under the reference's own tolerance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/core/gemm_types.h"
#include "kernels/core/reference_gemm.h"

namespace gemmd::bench {

// Rows and columns of D, ascending, each at most once.
struct Sample {
  std::vector<int64_t> rows, cols;
};

// All of D while its product has at most 2^27 terms, else 256 rows and 64 columns (or all there
// are): the first and the last, so all four corners, and others at random.
Sample PickSample(const GemmProblem& problem, uint64_t seed);

class SampledReference {
 public:
  // `a` and `b` hold the operands as problem.a and problem.b say and are not kept. Precondition:
  // batch is 1 and the problem reads neither C nor bias.
  SampledReference(const GemmProblem& problem, Sample sample, const std::byte* a,
                   const std::byte* b);

  const Sample& sample() const { return sample_; }

  // `d` holds the sampled rows of D one after another, each n long. Row and column in the answer
  // are D's own, first_wrong is an index into D packed. Uses every core.
  Mismatch Compare(const std::byte* d) const;

 private:
  Mismatch CompareRows(const std::byte* d, size_t first, size_t count) const;

  GemmProblem problem_;
  Sample sample_;
  std::vector<std::byte> a_;  // op(A)'s sampled rows, packed: (rows, k), or (k, rows) with op T
  std::vector<std::byte> b_;  // op(B)'s sampled columns, packed: (k, cols), or (cols, k) with op T
};

}  // namespace gemmd::bench
