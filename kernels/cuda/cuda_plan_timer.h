// Times plans on a CUDA device, for tuning and studies.
#pragma once

#include <memory>

#include "kernels/core/device_traits.h"
#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/plan/plan_timer.h"

namespace gemmd {

// As Backend::MakePlanTimer. The memory is the timer's own, outside the pools.
StatusOr<std::unique_ptr<PlanTimer>> MakeCudaPlanTimer(const GemmProblem& problem,
                                                       const DeviceTraits& traits);

}  // namespace gemmd
