#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/launcher.h"
#include "kernels/plan/planner.h"
#include "tests/bench/bench.h"
#include "tests/bench/operands.h"
#include "tests/bench/shape_list.h"

namespace gemmd::bench {
namespace {

// The medians of two times as many samples as these are compared, to parts in a thousand; of a
// shape that takes long, as many as fit the time, and these at least.
constexpr int kFewestRounds = 15;
constexpr double kShapeSeconds = 0.8;

int RoundsOf(const Plan& plan, int launches, const TimingOptions& options) {
  const double sample = std::max(options.sample_seconds, launches * plan.predicted_seconds);
  const double fit = kShapeSeconds / (2 * sample);
  return static_cast<int>(
      std::clamp<double>(fit, std::min(kFewestRounds, options.rounds), options.rounds));
}

Status MeasureProbe(const Shape& shape, const RandomPattern& pattern, const ShapesOptions& options,
                    const BenchContext& context) {
  const GemmProblem& problem = shape.problem;
  ASSIGN_OR_RETURN(const Plan plan,
                   Planner(context.traits).PlanFor(problem, options.constraints()));
  ASSIGN_OR_RETURN(const OperandSets sets,
                   OperandSets::Create(problem, context.traits.l2_bytes, pattern));
  std::vector<Enqueue> variants;
  for (const bool on : {false, true}) {
    variants.push_back([&sets, &problem, &plan, on](int index, cudaStream_t stream) {
      GemmParams params = sets.Params(index);
      if (on) params.counters = sets.Counters(index);
      return Launch(problem, plan, params, stream);
    });
  }
  const int launches = std::max(kFewLaunches, sets.sets());
  TimingOptions measure = context.measure;
  measure.rounds = RoundsOf(plan, launches, measure);
  ASSIGN_OR_RETURN(const std::vector<PlanTiming> timings,
                   MeasureInterleaved(variants, measure, launches));
  Json line = ShapeLine("probe-cost", shape);
  AddPlan(line, plan)
      .Set("off_us", Json::Rounded(Us(timings[0].median_seconds), 4))
      .Set("on_us", Json::Rounded(Us(timings[1].median_seconds), 4))
      .Set("ratio", Json::Rounded(timings[1].median_seconds / timings[0].median_seconds, 5))
      .Set("rounds", measure.rounds)
      .Set("seed", static_cast<int64_t>(context.seed));
  return context.out.Write(AddMachine(line, context));
}

}  // namespace

Status RunProbeCost(const ShapesOptions& options, const BenchContext& context) {
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes, ReadShapes(options.file, options.rows));
  std::optional<RandomPattern> pattern;  // of the type of the shape before
  for (const Shape& shape : shapes) {
    const DType type = shape.problem.type_a;
    if (!HasKernel(shape.problem)) continue;
    if (!pattern || pattern->type() != type) {
      ASSIGN_OR_RETURN(pattern, RandomPattern::Create(type, context.seed));
    }
    RETURN_IF_ERROR(MeasureProbe(shape, *pattern, options, context));
  }
  return OkStatus();
}

}  // namespace gemmd::bench
