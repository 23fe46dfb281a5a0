#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/quantile.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/planner.h"
#include "server/sampling/stall_sampler.h"
#include "tests/bench/bench.h"
#include "tests/bench/counters.h"
#include "tests/bench/operands.h"
#include "tests/bench/shape_list.h"

namespace gemmd::bench {
namespace {

constexpr double kDefaultPercent = 1;                       // of --pc-sampling
constexpr double kWarmUpSeconds = 0.2, kTurnSeconds = 0.3;  // of one rate
constexpr std::chrono::milliseconds kReadPeriod{100};       // several within a turn
constexpr int kBatch = 32;  // launches between two looks at the clock

// A backend is what has a sampler, where `percent` is above 0; nothing runs on its lanes here.
StatusOr<std::unique_ptr<Backend>> MakeSampling(double percent) {
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                   MakeCudaBackend(0, {.lanes = 1,
                                       .device_pool_bytes = 1 << 20,
                                       .pinned_pool_bytes = 1 << 20,
                                       .pc_sampling_percent = percent}));
  if (percent > 0 && backend->sampler() == nullptr) return backend->sampling_status();
  return backend;
}

// Wall time of a launch, as many in a row as fill `seconds`, the way a busy server launches.
StatusOr<double> SecondsOfLaunch(const GemmProblem& problem, const Plan& plan,
                                 const OperandSets& sets, double seconds) {
  using Clock = std::chrono::steady_clock;
  ASSIGN_OR_RETURN(const Stream stream, MakeStream());
  ASSIGN_OR_RETURN(const Event first, MakeEvent());
  ASSIGN_OR_RETURN(const Event second, MakeEvent());
  const Event* ends[] = {&first, &second};
  const Clock::time_point start = Clock::now();
  const Clock::time_point until =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  int launches = 0;
  for (int batch = 0; batch < 2 || Clock::now() < until; ++batch) {
    for (int i = 0; i < kBatch; ++i) {
      RETURN_IF_ERROR(Launch(problem, plan, sets.Params(launches++), stream.get()));
    }
    RETURN_IF_CUDA_ERROR(cudaEventRecord(ends[batch % 2]->get(), stream.get()));
    if (batch > 0) RETURN_IF_CUDA_ERROR(cudaEventSynchronize(ends[(batch + 1) % 2]->get()));
  }
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream.get()));
  return std::chrono::duration<double>(Clock::now() - start).count() / launches;
}

// One rate's. A backend is made at 0 too, and the time begins late: else a turn without samples
// would find a device that has not cooled down meanwhile and whose clocks are lower.
StatusOr<double> SecondsOfTurn(const GemmProblem& problem, const Plan& plan,
                               const OperandSets& sets, double percent) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeSampling(percent));
  std::optional<StallSampler> sampler;
  if (percent > 0) {
    sampler.emplace(std::vector<Backend*>{backend.get()},
                    SamplingOptions{.on = true, .period = kReadPeriod}, nullptr);
  }
  RETURN_IF_ERROR(SecondsOfLaunch(problem, plan, sets, kWarmUpSeconds).status());
  ASSIGN_OR_RETURN(const double time, SecondsOfLaunch(problem, plan, sets, kTurnSeconds));
  if (sampler && !sampler->totals().up) return Internal("the samples were not read");
  return time;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return Quantile(values, 0.5);
}

Status MeasureCost(const Shape& shape, const RandomPattern& pattern, const ShapesOptions& options,
                   const BenchContext& context) {
  const GemmProblem& problem = shape.problem;
  ASSIGN_OR_RETURN(const Plan plan,
                   Planner(context.traits).PlanFor(problem, options.constraints()));
  ASSIGN_OR_RETURN(const OperandSets sets,
                   OperandSets::Create(problem, context.traits.l2_bytes, pattern));
  constexpr double kPercents[] = {0, kDefaultPercent, 100};
  std::vector<double> seconds[std::size(kPercents)];
  for (int round = 0; round < context.measure.rounds; ++round) {
    for (size_t i = 0; i < std::size(kPercents); ++i) {
      const size_t turn = (i + static_cast<size_t>(round)) % std::size(kPercents);
      ASSIGN_OR_RETURN(const double time, SecondsOfTurn(problem, plan, sets, kPercents[turn]));
      seconds[turn].push_back(time);
    }
  }
  const double off = Median(seconds[0]);
  Json line = ShapeLine("pc-sampling-cost", shape);
  AddPlan(line, plan)
      .Set("off_us", Json::Rounded(Us(off), 4))
      .Set("default_us", Json::Rounded(Us(Median(seconds[1])), 4))
      .Set("full_us", Json::Rounded(Us(Median(seconds[2])), 4))
      .Set("default_ratio", Json::Rounded(Median(seconds[1]) / off, 5))
      .Set("full_ratio", Json::Rounded(Median(seconds[2]) / off, 5))
      .Set("default_percent", Json::Rounded(kDefaultPercent, 2))
      .Set("rounds", context.measure.rounds);
  return context.out.Write(AddMachine(line, context));
}

// Of the row's samples, by what its code did.
std::vector<int64_t> SamplesByKind(const PcSamples& samples, int row) {
  std::vector<int64_t> counts(kCodeKinds);
  for (const FunctionSamples& function : samples.functions) {
    if (function.kernel != row) continue;
    for (const RangeSamples& range : function.ranges) {
      counts[static_cast<size_t>(range.range.kind)] +=
          std::accumulate(range.by_reason.begin(), range.by_reason.end(), int64_t{0});
    }
  }
  return counts;
}

Status CheckStalls(const Shape& shape, const RandomPattern& pattern, const ShapesOptions& options,
                   const BenchContext& context, Backend& backend, StallSampler& sampler) {
  const GemmProblem& problem = shape.problem;
  const Planner planner(context.traits);
  ASSIGN_OR_RETURN(const Plan chosen, planner.PlanFor(problem, options.constraints()));
  ASSIGN_OR_RETURN(const OperandSets sets,
                   OperandSets::Create(problem, context.traits.l2_bytes, pattern));
  for (int stages = 1; stages <= kKernelTable[chosen.row].config.max_stages; ++stages) {
    const StatusOr<Plan> plan =
        planner.PlanFor(problem, {.row = chosen.row, .stages = stages, .split_k = 1});
    if (!plan.ok()) continue;  // its stages do not fit
    const Enqueue launch = [&](int index, cudaStream_t stream) {
      return Launch(problem, *plan, sets.Params(index), stream);
    };
    std::vector<PlanTiming> timings;
    ASSIGN_OR_RETURN(const PcSamples samples, sampler.Sample(backend, [&]() -> Status {
      ASSIGN_OR_RETURN(timings, MeasureInterleaved({launch}, context.measure));
      return OkStatus();
    }));
    ASSIGN_OR_RETURN(const StallSample stalls, StallsOf(sets, problem, *plan, context.traits));
    const std::vector<int64_t> counts = SamplesByKind(samples, plan->row);
    const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    const auto part = [&](CodeKind kind) {
      return static_cast<double>(counts[static_cast<size_t>(kind)]) / all;
    };
    const auto mainloop = static_cast<double>(stalls.mainloop);
    Json line = ShapeLine("stall-check", shape);
    AddPlan(line, *plan)
        .Set("resident_blocks", plan->resident_blocks)
        .Set("us", Json::Rounded(Us(timings[0].median_seconds), 3))
        .Set("wait_full", Json::Rounded(static_cast<double>(stalls.wait_full) / mainloop, 4))
        .Set("wait_empty", Json::Rounded(static_cast<double>(stalls.wait_empty) / mainloop, 4))
        .Set("samples", static_cast<int64_t>(all))
        .Set("samples_at_full", Json::Rounded(part(CodeKind::kWaitFull), 4))
        .Set("samples_at_empty", Json::Rounded(part(CodeKind::kWaitEmpty), 4))
        .Set("samples_at_math", Json::Rounded(part(CodeKind::kTensorMath), 4))
        .Set("samples_dropped", samples.dropped);
    RETURN_IF_ERROR(context.out.Write(AddMachine(line, context)));
  }
  return OkStatus();
}

template <typename Measure>  // of a shape and operands' values
Status ForEachShape(const ShapesOptions& options, const BenchContext& context, Measure measure) {
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes, ReadShapes(options.file, options.rows));
  for (const Shape& shape : shapes) {
    if (!HasKernel(shape.problem)) continue;
    ASSIGN_OR_RETURN(const RandomPattern pattern,
                     RandomPattern::Create(shape.problem.type_a, context.seed));
    RETURN_IF_ERROR(measure(shape, pattern));
  }
  return OkStatus();
}

}  // namespace

Status RunSamplingCost(const ShapesOptions& options, const BenchContext& context) {
  return ForEachShape(options, context, [&](const Shape& shape, const RandomPattern& pattern) {
    return MeasureCost(shape, pattern, options, context);
  });
}

Status RunStallCheck(const ShapesOptions& options, const BenchContext& context) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeSampling(100));
  StallSampler sampler({backend.get()}, {}, nullptr);
  return ForEachShape(options, context, [&](const Shape& shape, const RandomPattern& pattern) {
    return CheckStalls(shape, pattern, options, context, *backend, sampler);
  });
}

}  // namespace gemmd::bench
