// Random products for `gemmctl check`: shapes that kernels get wrong, in memory that shows what
// they should not have touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/gemm_client.h"
#include "kernels/core/gemm_types.h"

namespace gemmd {

struct CheckCase {
  GemmProblem problem;
  // Rows are padded with NaN (integers: their largest value); C is all NaN where beta is 0, A and B
  // where alpha is 0. D is poisoned, and followed by guard bytes.
  std::vector<std::byte> a, b, c, bias, d;
  int64_t result_bytes = 0;

  HostOperands Operands();
  bool GuardIntact() const;  // nothing was written behind D
};

// Case `index` of `seed`: the same for the same arguments, whatever was made before it. Extents are
// at most `max_extent` (>= 1), and m * n * k * batch small enough for the reference: about 4e6.
CheckCase MakeCheckCase(uint64_t seed, uint64_t index, int64_t max_extent,
                        const std::vector<ClientTypes>& types);

}  // namespace gemmd
