// The stall counters of one launch.
#pragma once

#include <array>

#include "kernels/cuda/gemm_params.h"
#include "kernels/plan/plan.h"
#include "tests/bench/json_line.h"
#include "tests/bench/operands.h"

namespace gemmd::bench {

using Counters = std::array<unsigned long long, kStallCounters>;  // cycles, over all blocks

// One launch with the probe on, read back.
StatusOr<Counters> CountersOf(const OperandSets& sets, const GemmProblem& problem,
                              const Plan& plan);

JsonLine& AddCounters(JsonLine& line, const Counters& counters);

}  // namespace gemmd::bench
