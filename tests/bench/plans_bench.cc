#include <algorithm>
#include <cstdio>
#include <utility>

#include "kernels/cuda/launcher.h"
#include "kernels/plan/planner.h"
#include "kernels/plan/tune.h"
#include "tests/bench/bench.h"
#include "tests/bench/counters.h"
#include "tests/bench/operands.h"
#include "tests/bench/shape_list.h"

namespace gemmd::bench {
namespace {

std::vector<Plan> PlansOf(const Planner& planner, const GemmProblem& problem,
                          const PlansOptions& options) {
  std::vector<Plan> plans = planner.Candidates(problem, options.shapes.constraints());
  std::erase_if(plans,
                [&, least = plans.empty() ? 0 : plans.front().predicted_seconds](const Plan& plan) {
                  return plan.predicted_seconds > options.within * least;
                });
  return BestOfEachKind(plans, options.most);
}

Status MeasurePlans(const Shape& shape, const PlansOptions& options, const BenchContext& context) {
  const GemmProblem& problem = shape.problem;
  const std::vector<Plan> plans = PlansOf(Planner(context.traits), problem, options);
  if (plans.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const RandomPattern pattern,
                   RandomPattern::Create(problem.type_a, context.seed));
  ASSIGN_OR_RETURN(const OperandSets sets,
                   OperandSets::Create(problem, context.traits.l2_bytes, pattern));
  std::vector<Enqueue> variants;
  for (const Plan& plan : plans) {
    variants.push_back([&sets, &problem, &plan](int index, cudaStream_t stream) {
      return Launch(problem, plan, sets.Params(index), stream);
    });
  }
  ASSIGN_OR_RETURN(
      const std::vector<PlanTiming> timings,
      MeasureInterleaved(variants, context.measure, std::max(kFewLaunches, sets.sets())));
  for (size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    ASSIGN_OR_RETURN(const StallSample stalls, StallsOf(sets, problem, plan, context.traits));
    Json line = ShapeLine("plans", shape);
    line.Set("rank", static_cast<int64_t>(i));
    AddPlan(line, plan)
        .Set("us", Json::Rounded(Us(timings[i].median_seconds), 3))
        .Set("predicted_us", Json::Rounded(plan.predicted_seconds * 1e6, 3));
    AddStalls(line, stalls);
    RETURN_IF_ERROR(context.out.Write(AddMachine(line, context)));
  }
  return OkStatus();
}

}  // namespace

Status RunPlans(const PlansOptions& options, const BenchContext& context) {
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes,
                   ReadShapes(options.shapes.file, options.shapes.rows));
  for (const Shape& shape : shapes) {
    if (HasKernel(shape.problem)) RETURN_IF_ERROR(MeasurePlans(shape, options, context));
  }
  return OkStatus();
}

}  // namespace gemmd::bench
