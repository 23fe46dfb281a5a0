// The planner of a server: the model, corrected by what was measured, with a memory of what it was
// asked before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
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

  // The model alone, with the device's calibration as it is now. Valid as long as this.
  const Planner& model() const { return *model_.load(std::memory_order_acquire); }

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

  // From now on the model has these figures of the device. Refused, and nothing changes, as
  // CheckCalibration says.
  Status Calibrate(const Calibration& calibration);
  // What Calibrate() took last; nullopt: the model has the figures that it came with.
  std::optional<Calibration> calibration() const;

 private:
  StatusOr<Plan> Choose(const GemmProblem& problem, const PlanConstraints& constraints) const;
  static StatusOr<Plan> Correct(const Planner& model, const GemmProblem& problem,
                                const TuningEntry& near);

  mutable Mutex mu_;
  TuningTable table_ GUARDED_BY(mu_);
  // The last is the present one. Those before stay, for who still has a reference: a calibration
  // takes a second or so, and a model some hundred bytes.
  std::deque<Planner> models_ GUARDED_BY(mu_);
  std::atomic<const Planner*> model_;  // released when it is whole
  // Counts what was learnt, after table or model has it: no plan made before is found again.
  std::atomic<uint64_t> generation_{0};
  mutable PlanCache cache_;
};

}  // namespace gemmd
