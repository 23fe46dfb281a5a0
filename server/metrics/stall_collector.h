// What the hardware's samples say that kernels wait for.
#pragma once

#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include "server/sampling/stall_sampler.h"

namespace gemmd {

// Thread-safe. A kernel and reason is a series from its first sample on. At most kSampledKernels
// times the driver's reasons, whatever runs on however many devices; few of them ever meet.
class StallCollector : public prometheus::Collectable {
 public:
  explicit StallCollector(const StallSampler& sampler) : sampler_(sampler) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const StallSampler& sampler_;
};

}  // namespace gemmd
