// Measured times of plans, by problem: what tuning has learnt about one device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/gemm_types.h"
#include "kernels/plan/plan.h"

namespace gemmd {

struct MeasuredPlan {
  Plan plan;           // row, stages, split_k and pair say which; the rest is the planner's
  double seconds = 0;  // device time of a launch, operands cold
};

struct TuningEntry {
  GemmProblem problem;
  std::vector<MeasuredPlan> plans;  // fastest first; at least one
};

}  // namespace gemmd
