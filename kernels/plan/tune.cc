#include "kernels/plan/tune.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace gemmd {
namespace {

// The first pass only has to tell finalists from the rest.
constexpr TimingOptions kFirstPass = {
    .rounds = 3, .sample_seconds = 3e-4, .hopeless = 1.5, .stalls = false};
constexpr TimingOptions kSecondPass = {
    .rounds = 9, .sample_seconds = 1e-3, .hopeless = 1.3, .stalls = false};

void AddOnce(const Plan& plan, std::vector<Plan>& to) {
  const bool there = std::any_of(to.begin(), to.end(),
                                 [&plan](const Plan& other) { return SameLaunch(plan, other); });
  if (!there) to.push_back(plan);
}

// One stage more and less; and where K is split, one part more and less.
void AddNeighbours(const Planner& planner, const GemmProblem& problem, const Plan& plan,
                   std::vector<Plan>& to) {
  const auto add_like = [&](int split_k, int stages_apart) {
    for (const Plan& other :
         planner.Candidates(problem, {.row = plan.row, .stages = {}, .split_k = split_k})) {
      if (other.pair == plan.pair && std::abs(other.stages - plan.stages) <= stages_apart) {
        AddOnce(other, to);
      }
    }
  };
  add_like(plan.split_k, 1);
  if (plan.split_k == 1) return;
  if (plan.split_k > 2) add_like(plan.split_k - 1, 0);
  add_like(plan.split_k + 1, 0);
}

StatusOr<std::vector<MeasuredPlan>> Measure(PlanTimer& timer, const std::vector<Plan>& plans,
                                            const TimingOptions& options, std::stop_token stop) {
  ASSIGN_OR_RETURN(const std::vector<PlanTiming> timings,
                   timer.Time(plans, options, std::move(stop)));
  std::vector<MeasuredPlan> measured;
  for (size_t i = 0; i < plans.size(); ++i) {
    measured.push_back({plans[i], timings[i].median_seconds});
  }
  std::stable_sort(
      measured.begin(), measured.end(),
      [](const MeasuredPlan& x, const MeasuredPlan& y) { return x.seconds < y.seconds; });
  return measured;
}

}  // namespace

std::vector<Plan> BestOfEachKind(const std::vector<Plan>& candidates, int most) {
  std::vector<Plan> plans;
  std::set<std::tuple<int, int, bool>> seen;
  for (const Plan& plan : candidates) {
    if (static_cast<int>(plans.size()) == most) break;
    if (seen.emplace(plan.row, plan.split_k, plan.pair).second) plans.push_back(plan);
  }
  return plans;
}

StatusOr<TuningEntry> TuneProblem(const Planner& planner, const GemmProblem& problem,
                                  PlanTimer& timer, const TuneOptions& options,
                                  std::stop_token stop) {
  const std::vector<Plan> first = BestOfEachKind(planner.Candidates(problem), options.candidates);
  if (first.empty()) return Internal(ToString(problem) + " has no plan to time");
  ASSIGN_OR_RETURN(std::vector<MeasuredPlan> measured, Measure(timer, first, kFirstPass, stop));
  std::vector<Plan> finalists = {
      first.front()};  // so that the entry says what the model's choice costs
  const size_t count = std::min(measured.size(), static_cast<size_t>(options.finalists));
  for (size_t i = 0; i < count; ++i) {
    AddOnce(measured[i].plan, finalists);
    AddNeighbours(planner, problem, measured[i].plan, finalists);
  }
  ASSIGN_OR_RETURN(measured, Measure(timer, finalists, kSecondPass, std::move(stop)));
  return TuningEntry{problem, std::move(measured)};
}

}  // namespace gemmd
