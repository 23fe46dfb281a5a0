// Finds the fastest plan for a problem by measurement.
#pragma once

#include <stop_token>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/plan/plan_timer.h"
#include "kernels/plan/planner.h"
#include "kernels/plan/tuning_table.h"

namespace gemmd {

// The first `most` kinds of plans, each by its first: plans are of a kind that differ in nothing
// but their stages.
std::vector<Plan> BestOfEachKind(const std::vector<Plan>& candidates, int most);

struct TuneOptions {
  int candidates = 24;  // plans that the first pass times, the model's best first
  int finalists = 4;    // of them, timed again at other stage counts and splits, and longer
};

// What was measured, for TunedPlanner::Learn. Times the model's best candidates briefly, then the
// fastest of them and their neighbours (one stage or one split more and less) longer, in turns. The
// entry's plans are those of the second pass, fastest first. CANCELLED, and no entry, after a
// request on `stop`. Precondition: the planner has a plan for the problem, which is not empty.
StatusOr<TuningEntry> TuneProblem(const Planner& planner, const GemmProblem& problem,
                                  PlanTimer& timer, const TuneOptions& options,
                                  std::stop_token stop);

}  // namespace gemmd
