// The stall counters of one launch, as fields of a line.
#pragma once

#include <cstdint>

#include "kernels/core/timing.h"
#include "kernels/cuda/measure.h"
#include "tests/bench/line_writer.h"
#include "tests/bench/operands.h"

namespace gemmd::bench {

// One launch on set 0 with the probe on; zeros where the kernel has none, or it was dropped.
inline StatusOr<StallSample> StallsOf(const OperandSets& sets, const GemmProblem& problem,
                                      const Plan& plan, const DeviceTraits& traits) {
  GemmParams params = sets.Params(0);
  params.counters = sets.Counters(0);
  return MeasureStalls(problem, plan, params, traits);
}

inline Json& AddStalls(Json& line, const StallSample& stalls) {
  return line.Set("wait_full", static_cast<int64_t>(stalls.wait_full))
      .Set("wait_empty", static_cast<int64_t>(stalls.wait_empty))
      .Set("mainloop", static_cast<int64_t>(stalls.mainloop))
      .Set("epilogue", static_cast<int64_t>(stalls.epilogue));
}

}  // namespace gemmd::bench
