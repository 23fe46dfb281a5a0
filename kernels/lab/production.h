// A production kernel with its waits written down.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/device_traits.h"
#include "kernels/core/status.h"
#include "kernels/lab/timeline.h"
#include "kernels/plan/plan.h"

namespace gemmd::lab {

// Rows of the kernel table that can be traced; on the device of `traits`.
std::vector<int> TracedRows();
std::vector<int> TracedRows(const DeviceTraits& traits);

// A product of bf16, m x n x k, by a row at a stage count, without split-K and pairs.
struct TracedProduct {
  int row = 0, stages = 1;
  int64_t m = 0, n = 0, k = 0;
};

// Of these blocks of one launch, the second of two, on the device of `traits`. INVALID_ARGUMENT
// where no such plan is, or no such block.
StatusOr<std::vector<Picture>> TraceProduct(const DeviceTraits& traits,
                                            const TracedProduct& product,
                                            const std::vector<int>& blocks);

}  // namespace gemmd::lab
