#include "kernels/plan/tuned_planner.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/plan/cost_model.h"

namespace gemmd {
namespace {

// A plan that a measurement chose.
Plan ChosenBy(Plan plan, double measured_seconds) {
  plan.source = PlanSource::kMeasured;
  if (plan.stages > 0) plan.limit = StageLimit::kMeasured;
  plan.measured_seconds = measured_seconds;
  return plan;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Measured over predicted; 1 where there is no model. Predicted anew: the model may have been
// calibrated since.
double CorrectionOf(const Planner& model, const GemmProblem& p, const MeasuredPlan& measured) {
  const StatusOr<Plan> plan = model.Complete(p, measured.plan);
  return plan.ok() && plan->predicted_seconds > 0 ? measured.seconds / plan->predicted_seconds
                                                  : 1.0;
}

}  // namespace

TunedPlanner::TunedPlanner(DeviceTraits traits) : model_(nullptr) {
  MutexLock lock(mu_);
  model_ = &models_.emplace_back(std::move(traits));
}

StatusOr<Plan> TunedPlanner::PlanFor(const GemmProblem& p,
                                     const PlanConstraints& constraints) const {
  if (p.empty()) return model().PlanFor(p, constraints);
  const PlanCache::Key key(p, constraints);
  const uint64_t generation = generation_.load();
  if (const std::optional<Plan> plan = cache_.Find(key, generation)) return *plan;
  StatusOr<Plan> plan = Choose(p, constraints);
  if (plan.ok()) cache_.Keep(key, generation, *plan);
  return plan;
}

StatusOr<Plan> TunedPlanner::Choose(const GemmProblem& p,
                                    const PlanConstraints& constraints) const {
  const Planner& model = this->model();
  std::optional<TuningEntry> exact, near;
  {
    MutexLock lock(mu_);
    if (const TuningEntry* const entry = table_.Find(p)) {
      exact = *entry;
    } else if (const TuningEntry* const other = table_.FindNear(p)) {
      near = *other;
    }
  }
  if (exact) {
    for (const MeasuredPlan& measured : exact->plans) {
      if (!constraints.Met(measured.plan)) continue;
      ASSIGN_OR_RETURN(const Plan plan, model.Complete(p, measured.plan));
      Plan chosen = ChosenBy(plan, measured.seconds);
      if (constraints.any()) chosen.source = PlanSource::kForced;
      if (constraints.stages) chosen.limit = StageLimit::kForced;
      return chosen;
    }
  }
  if (near && !constraints.any()) return Correct(model, p, *near);
  return model.PlanFor(p, constraints);
}

StatusOr<Plan> TunedPlanner::Correct(const Planner& model, const GemmProblem& p,
                                     const TuningEntry& near) {
  std::vector<Plan> measured;  // as they would run here
  std::vector<double> corrections;
  std::optional<Plan> best;
  double least_seconds = 0;
  for (const MeasuredPlan& there : near.plans) {
    const double correction = CorrectionOf(model, near.problem, there);
    corrections.push_back(correction);
    Plan choice = there.plan;
    if (choice.stages > 1) {
      const int64_t steps =
          StepsOfBlock(kKernelTable[choice.row].config, p, choice, model.traits());
      choice.stages = static_cast<int>(std::clamp<int64_t>(steps, 1, choice.stages));
    }
    const StatusOr<Plan> here = model.Complete(p, choice);
    if (!here.ok()) continue;
    measured.push_back(*here);
    const double seconds = here->predicted_seconds * correction;
    if (best && seconds >= least_seconds) continue;
    best = ChosenBy(*here, 0);
    least_seconds = seconds;
  }
  const std::optional<Plan> other = model.FastestBut(p, measured);
  if (other && (!best || other->predicted_seconds * Median(corrections) < least_seconds)) {
    return *other;
  }
  if (!best) return model.PlanFor(p);
  return *best;
}

std::vector<Plan> TunedPlanner::Candidates(const GemmProblem& p,
                                           const PlanConstraints& constraints) const {
  const Planner& model = this->model();
  std::vector<Plan> plans;
  std::optional<TuningEntry> exact;
  {
    MutexLock lock(mu_);
    if (const TuningEntry* const entry = table_.Find(p)) exact = *entry;
  }
  if (exact) {
    for (const MeasuredPlan& measured : exact->plans) {
      if (!constraints.Met(measured.plan)) continue;
      StatusOr<Plan> plan = model.Complete(p, measured.plan);
      if (!plan.ok()) continue;
      plan->measured_seconds = measured.seconds;
      plans.push_back(*std::move(plan));
    }
  }
  const size_t measured = plans.size();
  for (const Plan& plan : model.Candidates(p, constraints)) {
    const auto end = plans.begin() + static_cast<std::ptrdiff_t>(measured);
    if (std::none_of(plans.begin(), end,
                     [&plan](const Plan& known) { return SameLaunch(known, plan); })) {
      plans.push_back(plan);
    }
  }
  return plans;
}

bool TunedPlanner::Learn(TuningEntry entry) {
  const Planner& model = this->model();
  std::vector<MeasuredPlan> plans;
  for (const MeasuredPlan& measured : entry.plans) {
    const StatusOr<Plan> plan = model.Complete(entry.problem, measured.plan);
    if (!plan.ok() || !std::isfinite(measured.seconds) || measured.seconds <= 0) continue;
    plans.push_back({*plan, measured.seconds});
  }
  if (plans.empty()) return false;
  std::stable_sort(plans.begin(), plans.end(), [](const MeasuredPlan& x, const MeasuredPlan& y) {
    return x.seconds < y.seconds;
  });
  if (plans.size() > kMaxPlans) plans.resize(kMaxPlans);
  entry.plans = std::move(plans);
  {
    MutexLock lock(mu_);
    table_.Add(std::move(entry));
  }
  generation_.fetch_add(1);
  return true;
}

std::vector<TuningEntry> TunedPlanner::Learnt() const {
  MutexLock lock(mu_);
  return table_.Entries();
}

size_t TunedPlanner::entries() const {
  MutexLock lock(mu_);
  return table_.size();
}

Status TunedPlanner::Calibrate(const Calibration& calibration) {
  DeviceTraits traits = model().traits();
  RETURN_IF_ERROR(CheckCalibration(calibration, traits.compute_capability));
  traits.calibration = calibration;
  {
    MutexLock lock(mu_);
    model_.store(&models_.emplace_back(std::move(traits)), std::memory_order_release);
  }
  generation_.fetch_add(1);
  return OkStatus();
}

std::optional<Calibration> TunedPlanner::calibration() const {
  MutexLock lock(mu_);
  if (models_.size() == 1) return std::nullopt;
  return models_.back().traits().calibration;
}

}  // namespace gemmd
