#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_plan_timer.h"
#include "kernels/plan/planner.h"
#include "kernels/plan/tune.h"
#include "tests/bench/bench.h"
#include "tests/bench/shape_list.h"

namespace gemmd::bench {
namespace {

// The search has to find the fastest few of hundreds; those are then timed longer, beside the
// picks.
constexpr TimingOptions kSearch = {
    .rounds = 2, .sample_seconds = 1e-4, .hopeless = 1.3, .stalls = false};
constexpr TimingOptions kFinal = {
    .rounds = 11, .sample_seconds = 1e-3, .hopeless = 0, .stalls = false};
constexpr size_t kFinalists = 8;
// The model's estimate is trusted as far as this, so that slow plans of long products are not run.
constexpr double kSearchWithin = 4;

// Extents log-uniform from 1 to options.max_extent.
StatusOr<std::vector<Shape>> RandomShapes(const SelectionOptions& options, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(0, std::log(options.max_extent + 1.0));
  const auto extent = [&] {
    return std::min<int64_t>(static_cast<int64_t>(std::exp(exponent(random))), options.max_extent);
  };
  std::vector<Shape> shapes;
  for (int i = 0; i < options.count; ++i) {
    const int64_t m = extent(), n = extent(), k = extent();
    const uint64_t bits = random();
    const ShapeTypes types{.type = bits & 4 ? DType::kBF16 : DType::kF16,
                           .op_a = bits & 1 ? Op::kT : Op::kN,
                           .op_b = bits & 2 ? Op::kT : Op::kN};
    ASSIGN_OR_RETURN(const GemmProblem problem, PackedProblem(m, n, k, types));
    shapes.push_back({"random-" + std::to_string(i), problem, bits & 4 ? "bf16" : "fp16"});
  }
  return shapes;
}

class SelectionBench {
 public:
  explicit SelectionBench(const BenchContext& context)
      : context_(context), planner_(context.traits) {}

  Status Run(const Shape& shape) {
    const GemmProblem& problem = shape.problem;
    ASSIGN_OR_RETURN(const std::unique_ptr<PlanTimer> timer,
                     MakeCudaPlanTimer(problem, context_.traits));
    ASSIGN_OR_RETURN(const Plan by_model, planner_.PlanFor(problem));
    ASSIGN_OR_RETURN(const TuningEntry entry, TuneProblem(planner_, problem, *timer, {}, {}));
    const Plan tuned = entry.plans.front().plan;

    ASSIGN_OR_RETURN(std::vector<Plan> plans, Fastest(problem, *timer));
    plans.push_back(by_model);
    plans.push_back(tuned);
    // The picked plan at every stage count, to see whether depth was paid for.
    const size_t first_depth = plans.size();
    for (const Plan& plan :
         planner_.Candidates(problem, {.row = by_model.row, .stages = {}, .split_k = {}})) {
      if (plan.split_k == by_model.split_k && plan.pair == by_model.pair) plans.push_back(plan);
    }
    ASSIGN_OR_RETURN(const std::vector<PlanTiming> timings, timer->Time(plans, kFinal, {}));

    const auto seconds = [&](size_t i) { return timings[i].median_seconds; };
    size_t best = 0, best_depth = first_depth;
    for (size_t i = 0; i < plans.size(); ++i) {
      if (seconds(i) < seconds(best)) best = i;
      if (i >= first_depth && seconds(i) < seconds(best_depth)) best_depth = i;
    }
    const size_t model_at = first_depth - 2, tuned_at = first_depth - 1;
    // A plan is timed as often as it came up; its own best time counts, so that a pick is not
    // beaten by itself.
    const auto best_of_same = [&](size_t at) {
      double least = seconds(at);
      for (size_t i = 0; i < plans.size(); ++i) {
        if (SameLaunch(plans[i], plans[at])) least = std::min(least, seconds(i));
      }
      return least;
    };
    for (const auto& [source, at] : {std::pair{"model", model_at}, {"measured", tuned_at}}) {
      Json line = Json::Object();
      line.Set("bench", "selection")
          .Set("dtype", shape.dtype)
          .Set("layout", OpsName(shape.problem))
          .Set("m", shape.problem.m)
          .Set("n", shape.problem.n)
          .Set("k", shape.problem.k)
          .Set("source", source)
          .Set("kernel", plans[at].kernel())
          .Set("stages", plans[at].stages)
          .Set("split_k", plans[at].split_k)
          .Set("pair", plans[at].pair)
          .Set("picked_us", Json::Rounded(best_of_same(at) * 1e6, 3))
          .Set("predicted_us", Json::Rounded(plans[at].predicted_seconds * 1e6, 3))
          .Set("best_kernel", plans[best].kernel())
          .Set("best_stages", plans[best].stages)
          .Set("best_split_k", plans[best].split_k)
          .Set("best_pair", plans[best].pair)
          .Set("best_us", Json::Rounded(seconds(best) * 1e6, 3));
      if (at == model_at && best_depth < plans.size()) {
        line.Set("fastest_depth", plans[best_depth].stages)
            .Set("fastest_depth_us", Json::Rounded(seconds(best_depth) * 1e6, 3));
      }
      line.Set("seed", static_cast<int64_t>(context_.seed));
      RETURN_IF_ERROR(context_.out.Write(AddMachine(line, context_)));
    }
    return OkStatus();
  }

 private:
  // The fastest plans of all rows, stage counts, splits and pairs.
  StatusOr<std::vector<Plan>> Fastest(const GemmProblem& problem, PlanTimer& timer) const {
    std::vector<Plan> plans = planner_.Candidates(problem);
    std::erase_if(plans, [least = plans.front().predicted_seconds](const Plan& plan) {
      return plan.predicted_seconds > kSearchWithin * least;
    });
    ASSIGN_OR_RETURN(const std::vector<PlanTiming> timings, timer.Time(plans, kSearch, {}));
    std::vector<size_t> order;
    for (size_t i = 0; i < plans.size(); ++i) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](size_t x, size_t y) {
      return timings[x].median_seconds < timings[y].median_seconds;
    });
    std::vector<Plan> fastest;
    for (size_t i = 0; i < std::min(order.size(), kFinalists); ++i) {
      fastest.push_back(plans[order[i]]);
    }
    return fastest;
  }

  const BenchContext& context_;
  const Planner planner_;
};

}  // namespace

Status RunSelection(const SelectionOptions& options, const BenchContext& context) {
  SelectionBench bench(context);
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes, RandomShapes(options, context.seed));
  for (const Shape& shape : shapes) {
    RETURN_IF_ERROR(bench.Run(shape));
  }
  return OkStatus();
}

}  // namespace gemmd::bench
