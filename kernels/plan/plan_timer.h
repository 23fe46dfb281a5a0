// Measures how long plans take on a device. The seam between tuning, which is pure, and the
// backends.
#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/core/timing.h"
#include "kernels/plan/plan.h"

namespace gemmd {

// Device time of one launch.
struct PlanTiming {
  double median_seconds = 0;
  double p5_seconds = 0;  // of the samples; the median where there are too few
  double p95_seconds = 0;
  StallSample stalls;  // of one launch, where asked for
};

struct TimingOptions {
  int rounds = 5;                // samples of each plan, in turns with the others'
  double sample_seconds = 1e-3;  // a sample is as many launches as take about this long
  // A plan whose first launches take more than so many times those of the fastest before it is not
  // timed further: they are its time. 0: all are.
  double hopeless = 0;
  bool stalls = false;  // also read the probe, in a launch of its own
};

// Times plans of one problem, on random operands that come from device memory rather than from
// caches. Holds memory of its backend until it is destroyed. One thread at a time.
class PlanTimer {
 public:
  virtual ~PlanTimer() = default;

  // A timing for each plan, in order. Blocks; CANCELLED soon after a request on `stop`.
  // Precondition: the plans are the planner's for this problem and device.
  virtual StatusOr<std::vector<PlanTiming>> Time(std::span<const Plan> plans,
                                                 const TimingOptions& options,
                                                 std::stop_token stop) = 0;
};

}  // namespace gemmd
