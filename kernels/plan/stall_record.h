// Whether what a launch's stall probe left in memory can be that launch's: a record that was lost,
// never written, or written while a clock wrapped must not reach a reply or a sum.
#pragma once

#include <cstdint>

#include "kernels/core/device_traits.h"
#include "kernels/core/gemm_types.h"
#include "kernels/core/timing.h"
#include "kernels/plan/plan.h"

namespace gemmd {

// K tiles that the blocks of a launch consume between them: all of every tile of D, whatever parts
// or turns they come in; of pairs, those beyond D's edge too. Precondition: plan.stages > 0.
uint64_t KTilesOfLaunch(const GemmProblem& problem, const Plan& plan);

// `record`, or a dropped one where no launch of `plan` that took `kernel` by device events can have
// counted it. Precondition: plan.stages > 0.
StallSample JudgeStalls(const StallSample& record, const GemmProblem& problem, const Plan& plan,
                        const DeviceTraits& traits, Nanoseconds kernel);

}  // namespace gemmd
