// Times products on the CPU, for tuning and studies.
#pragma once

#include <memory>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/plan/plan_timer.h"

namespace gemmd {

// RESOURCE_EXHAUSTED when there is no memory for the operands. Precondition: as
// Backend::MakePlanTimer.
StatusOr<std::unique_ptr<PlanTimer>> MakeCpuPlanTimer(const GemmProblem& problem);

}  // namespace gemmd
