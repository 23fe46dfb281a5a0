#include "tests/bench/counters.h"

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/launcher.h"

namespace gemmd::bench {

StatusOr<Counters> CountersOf(const OperandSets& sets, const GemmProblem& problem,
                              const Plan& plan) {
  Counters counters{};
  GemmParams params = sets.Params(0);
  params.counters = sets.Counters(0);
  RETURN_IF_CUDA_ERROR(cudaMemset(params.counters, 0, sizeof(counters)));
  RETURN_IF_ERROR(Launch(problem, plan, params, nullptr));
  RETURN_IF_CUDA_ERROR(
      cudaMemcpy(counters.data(), params.counters, sizeof(counters), cudaMemcpyDeviceToHost));
  return counters;
}

JsonLine& AddCounters(JsonLine& line, const Counters& counters) {
  return line.Integer("wait_full", static_cast<int64_t>(counters[0]))
      .Integer("wait_empty", static_cast<int64_t>(counters[1]))
      .Integer("mainloop", static_cast<int64_t>(counters[2]))
      .Integer("epilogue", static_cast<int64_t>(counters[3]));
}

}  // namespace gemmd::bench
