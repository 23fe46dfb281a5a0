// The planner of a server: the model, corrected by what was measured, with a memory of what it was
// asked before.
#pragma once

#include <vector>

#include "kernels/plan/planner.h"
#include "kernels/plan/tuning_table.h"

namespace gemmd {

class TunedPlanner {  // Thread-safe.
 public:
  explicit TunedPlanner(DeviceTraits traits);

  // The model alone.
  const Planner& model() const { return model_; }

  // As Planner's. A plan that a measurement chose says so (source, limit, measured_seconds).
  StatusOr<Plan> PlanFor(const GemmProblem& problem, const PlanConstraints& constraints = {}) const;
  std::vector<Plan> Candidates(const GemmProblem& problem,
                               const PlanConstraints& constraints = {}) const;

  // From now on plans take it into account; replaces what was known of the same problem.
  void Learn(TuningEntry entry);
  // Everything that was learnt.
  std::vector<TuningEntry> Learnt() const;

 private:
  const Planner model_;
};

}  // namespace gemmd
