#include <optional>
#include <utility>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/planner.h"
#include "tests/bench/bench.h"
#include "tests/bench/counters.h"
#include "tests/bench/operands.h"

namespace gemmd::bench {
namespace {

GemmProblem ProblemOf(const SweepOptions& options, DType type, int64_t k) {
  GemmProblem p;
  p.m = options.m, p.n = options.n, p.k = k;
  p.op_a = options.layout[0] == 'T' ? Op::kT : Op::kN;
  p.op_b = options.layout[1] == 'T' ? Op::kT : Op::kN;
  p.type_a = p.type_b = p.type_d = type;
  return WithPackedLayouts(p);
}

// Every kernel that takes the types, at every stage count that fits: blocks that work alone, on
// whole tiles, so that plans differ in the ring and nothing else.
std::vector<Plan> AllPlans(const Planner& planner, const GemmProblem& problem, int max_stages) {
  std::vector<Plan> plans;
  for (int row = 0; row < kKernelRows; ++row) {
    for (int stages = 1; stages <= max_stages; ++stages) {
      for (const Plan& plan :
           planner.Candidates(problem, {.row = row, .stages = stages, .split_k = 1})) {
        if (!plan.pair) plans.push_back(plan);
      }
    }
  }
  return plans;
}

Status SweepOne(const SweepOptions& options, const BenchContext& context, const Planner& planner,
                const GemmProblem& problem, const OperandSets& sets) {
  const std::vector<Plan> plans = AllPlans(planner, problem, options.max_stages);
  ASSIGN_OR_RETURN(const Plan picked, planner.PlanFor(problem));
  std::vector<Enqueue> variants;
  for (const Plan& plan : plans) {
    variants.push_back([&sets, &problem, plan](int index, cudaStream_t stream) {
      return Launch(problem, plan, sets.Params(index), stream);
    });
  }
  ASSIGN_OR_RETURN(const std::vector<PlanTiming> timings,
                   MeasureInterleaved(variants, context.measure));
  for (size_t i = 0; i < plans.size(); ++i) {
    ASSIGN_OR_RETURN(const StallSample stalls, StallsOf(sets, problem, plans[i], context.traits));
    const bool is_pick = plans[i].row == picked.row && plans[i].stages == picked.stages;
    Json line = Json::Object();
    line.Set("bench", "stage-sweep")
        .Set("dtype", options.dtype)
        .Set("layout", options.layout)
        .Set("m", problem.m)
        .Set("n", problem.n)
        .Set("k", problem.k)
        .Set("kernel", plans[i].kernel())
        .Set("stages", plans[i].stages)
        .Set("resident_blocks", plans[i].resident_blocks)
        .Set("smem_bytes", plans[i].smem_bytes)
        .Set("us", Json::Rounded(Us(timings[i].median_seconds), 3))
        .Set("p5_us", Json::Rounded(Us(timings[i].p5_seconds), 3))
        .Set("p95_us", Json::Rounded(Us(timings[i].p95_seconds), 3))
        .Set("tflops", Json::Rounded(problem.flops() / Us(timings[i].median_seconds) * 1e-6, 1))
        .Set("predicted_us", Json::Rounded(plans[i].predicted_seconds * 1e6, 3))
        .Set("picked", is_pick);
    AddStalls(line, stalls).Set("seed", static_cast<int64_t>(context.seed));
    RETURN_IF_ERROR(context.out.Write(AddMachine(line, context)));
  }
  return OkStatus();
}

}  // namespace

Status RunSweep(const SweepOptions& options, const BenchContext& context) {
  const std::optional<DType> type = DTypeFromName(options.dtype);
  if (!type) return InvalidArgument("dtype", "dtype=" + options.dtype + " is no type");
  const Planner planner(context.traits);
  ASSIGN_OR_RETURN(const RandomPattern pattern, RandomPattern::Create(*type, context.seed));
  for (const int64_t k : options.k) {
    const GemmProblem problem = ProblemOf(options, *type, k);
    RETURN_IF_ERROR(ValidateProblem(problem));
    ASSIGN_OR_RETURN(const OperandSets sets,
                     OperandSets::Create(problem, context.traits.l2_bytes, pattern));
    RETURN_IF_ERROR(SweepOne(options, context, planner, problem, sets));
  }
  return OkStatus();
}

}  // namespace gemmd::bench
