// Chooses kernel and stage count for a problem on a device. Pure: same inputs, same plan; no device
// is needed.
#pragma once

#include <optional>
#include <span>
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
  // (fields plan.kernel, plan.stages, plan.split_k) when a constraint cannot be met.
  // Precondition: ValidateProblem(problem) is OK.
  StatusOr<Plan> PlanFor(const GemmProblem& problem, const PlanConstraints& constraints = {}) const;

  // Every plan that can run and meets the constraints, fastest by the model first. Empty for an
  // empty product.
  std::vector<Plan> Candidates(const GemmProblem& problem,
                               const PlanConstraints& constraints = {}) const;

  // The plan with the row, stages, split_k and pair of `choice` and the rest filled in.
  // INVALID_ARGUMENT (field plan) when it cannot run; UNIMPLEMENTED as above.
  StatusOr<Plan> Complete(const GemmProblem& problem, const Plan& choice) const;

  // The fastest plan by the model that is not the same as one of `but`. nullopt when there is none,
  // and where there is no choice to make: a CPU, or a problem that reads no A and B.
  std::optional<Plan> FastestBut(const GemmProblem& problem, std::span<const Plan> but) const;

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
