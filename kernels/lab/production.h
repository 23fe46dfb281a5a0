// A production kernel with its waits written down.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/device_traits.h"
#include "kernels/core/status.h"
#include "kernels/lab/timeline.h"
#include "kernels/plan/plan.h"

namespace gemmd::lab {

// Rows of the kernel table that can be traced.
std::vector<int> TracedRows(const DeviceTraits& traits);

// One product of bf16, m x n x k, on the device of `traits`, by a row at a stage count, without
// split-K and pairs; the second of two launches. INVALID_ARGUMENT where no such plan is.
StatusOr<Picture> TraceProduct(const DeviceTraits& traits, int row, int stages, int64_t m,
                               int64_t n, int64_t k);

}  // namespace gemmd::lab
