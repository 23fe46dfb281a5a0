// Quantiles of samples.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace gemmd {

// The sample nearest to quantile q, 0 to 1. Precondition: `sorted` is not empty, and ascending.
inline double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace gemmd
