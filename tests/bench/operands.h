// Random operands in device memory, in as many sets as keep launches from meeting their own data in
// the L2 cache.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/cuda/device_image.h"
#include "kernels/cuda/gemm_params.h"
#include "kernels/cuda/handles.h"

namespace gemmd::bench {

class OperandSets {
 public:
  // Standard normal values from `seed`. As many sets as make up three times `l2_bytes`, 64 at most.
  static StatusOr<OperandSets> Create(const GemmProblem& problem, int64_t l2_bytes, uint64_t seed);

  // Pointers, leading dimensions and strides of set `index` modulo the sets; no probe.
  GemmParams Params(int index) const;
  // The counters of set `index`, zeroed since creation.
  unsigned long long* Counters(int index) const;
  int sets() const { return static_cast<int>(sets_.size()); }

 private:
  DeviceImage image_;
  std::vector<DeviceBuffer> sets_;
};

}  // namespace gemmd::bench
