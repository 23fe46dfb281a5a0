// Times products on the CPU, for tuning and studies.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/plan/plan_timer.h"

namespace gemmd {

// Most that the operands and result of a timed product may take, where half of the host's memory is
// not less. What a server is asked for in messages of at most 2 GiB each way is never more.
inline constexpr int64_t kMostTimedBytes = int64_t{4} << 30;

// RESOURCE_EXHAUSTED when there is no memory for the operands. The memory is taken as the timer
// first fills it. Precondition: as Backend::MakePlanTimer.
StatusOr<std::unique_ptr<PlanTimer>> MakeCpuPlanTimer(const GemmProblem& problem);

}  // namespace gemmd
