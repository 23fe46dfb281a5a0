// Chooses kernel and stage count for a problem on a device. Pure: same inputs, same plan; no device
// is needed.
//
// Formula. Let C be the clocks that a K step costs the SM's issue slots (products, and the reads of
// shared memory that feed them), O what a step costs a block that is alone (its barrier and first
// reads), L the latency of a panel, S the stages and R the blocks resident on an SM. A step of all
// R blocks then takes
//     P = max(R C + O, L + C)             for S = 1: a panel is loaded, waited for, then used
//     P = max(R C, C + O, L / (S - 1))    for S > 1: a panel is asked for S - 1 steps before its
//     use
// and a wave of R blocks an SM takes L + k_tiles P + epilogue. A launch is its full waves and the
// last, thinner one, but never less than its unique bytes take from device memory. R falls as S
// grows, which is how a stage that costs residency pays for that.
//
// The TMA kernel has one block an SM, whose step takes L + C for S = 1 and about the larger of C
// and L / (S - 1) above; the next tile's panels are already on their way when a tile ends, so L is
// paid once a launch.
#pragma once

#include <vector>

#include "kernels/core/device_traits.h"
#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/plan/plan.h"

namespace gemmd {

class Planner {  // Thread-safe: immutable after construction.
 public:
  explicit Planner(DeviceTraits traits) : traits_(std::move(traits)) {}

  const DeviceTraits& traits() const { return traits_; }

  // UNIMPLEMENTED when no kernel of this device takes the types or mode; INVALID_ARGUMENT
  // (fields options.kernel, options.stages, options.split_k) when a constraint cannot be met.
  // Precondition: ValidateProblem(problem) is OK.
  StatusOr<Plan> PlanFor(const GemmProblem& problem, const PlanConstraints& constraints = {}) const;

  // Every plan that can run, fastest by the model first. Empty for an empty product.
  std::vector<Plan> Candidates(const GemmProblem& problem) const;

 private:
  DeviceTraits traits_;
};

// Blocks of `config` that one SM holds at `stages` stages: the least of what shared memory,
// registers, threads and block slots allow; 0 when it does not fit at all.
int ResidentBlocks(const KernelConfig& config, int stages, const DeviceTraits& traits);

// Whether `config` is a kernel for these types and mode on this device.
bool TakesTypes(const KernelConfig& config, const GemmProblem& problem, const DeviceTraits& traits);

// OK when the device has a kernel for the problem's types and mode, else UNIMPLEMENTED naming them.
Status CheckSupported(const GemmProblem& problem, const DeviceTraits& traits);

}  // namespace gemmd
