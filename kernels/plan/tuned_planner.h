// The planner of a server: the model, corrected by what was measured, with a memory of what it was
// asked before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/core/mutex.h"
#include "kernels/plan/plan_cache.h"
#include "kernels/plan/planner.h"
#include "kernels/plan/tuning_table.h"

namespace gemmd {

class TunedPlanner {  // Thread-safe.
 public:
  static constexpr size_t kMaxPlans = 16;  // that are kept of an entry

  explicit TunedPlanner(DeviceTraits traits);

  // The model alone.
  const Planner& model() const { return model_; }

  // As Planner's. A plan that a measurement chose says so (source, limit, measured_seconds):
  //   measured itself   the fastest of its plans that meets the constraints;
  //   near a measured   the fastest by the model, times what the model was wrong by there: of each
  //   problem           plan that was measured by its own factor, of the others by the median. Its
  //                     source is the measurement where that plan was measured.
  //   neither           the model's.
  // Takes less than a microsecond for a problem that was asked about before.
  StatusOr<Plan> PlanFor(const GemmProblem& problem, const PlanConstraints& constraints = {}) const;
  // Those that were measured, fastest first, then the others as Planner's.
  std::vector<Plan> Candidates(const GemmProblem& problem,
                               const PlanConstraints& constraints = {}) const;

  // From now on plans take it into account; replaces what was known of the same problem. Leaves out
  // plans that cannot run, times that are not above 0 and finite, and all but the kMaxPlans
  // fastest; false when nothing is left to learn.
  bool Learn(TuningEntry entry);
  // Everything that was learnt, the oldest first.
  std::vector<TuningEntry> Learnt() const;
  size_t entries() const;  // that were learnt

 private:
  StatusOr<Plan> Choose(const GemmProblem& problem, const PlanConstraints& constraints) const;
  StatusOr<Plan> Correct(const GemmProblem& problem, const TuningEntry& near) const;

  const Planner model_;
  mutable Mutex mu_;
  TuningTable table_ GUARDED_BY(mu_);
  // Counts what was learnt, after the table has it: no plan made before is found again.
  std::atomic<uint64_t> generation_{0};
  mutable PlanCache cache_;
};

}  // namespace gemmd
