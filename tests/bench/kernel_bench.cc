// gemmd_bench: device time of kernels, as JSON lines on standard output.
//
//   gemmd_bench sweep       time against stage count, for each kernel, over K
//   gemmd_bench probe-cost  the stall probe on against off, interleaved
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_probe.h"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/planner.h"
#include "tests/bench/measure.h"
#include "tests/bench/operands.h"

namespace gemmd::bench {
namespace {

struct Options {
  int64_t m = 4096, n = 4096;
  std::vector<int64_t> k = {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
  std::string dtype = "bf16";
  std::string layout = "NN";
  int max_stages = 5;
  uint64_t seed = 1;
  std::string commit = "unknown";
  MeasureOptions measure;
};

struct Context {
  const Options& options;
  DeviceTraits traits;
  std::string date;
};

GemmProblem ProblemOf(const Options& o, int64_t k) {
  GemmProblem p;
  p.m = o.m, p.n = o.n, p.k = k;
  p.op_a = o.layout[0] == 'T' ? Op::kT : Op::kN;
  p.op_b = o.layout[1] == 'T' ? Op::kT : Op::kN;
  p.type_a = p.type_b = p.type_d = DTypeFromName(o.dtype).value_or(DType::kBF16);
  return WithPackedLayouts(p);
}

// The start of every line: what was measured, and on what.
std::string LinePrefix(const char* bench, const Context& context, const GemmProblem& p,
                       const Plan& plan) {
  char text[512];
  std::snprintf(text, sizeof(text),
                "{\"bench\":\"%s\",\"dtype\":\"%s\",\"layout\":\"%s\",\"m\":%lld,\"n\":%lld,"
                "\"k\":%lld,\"kernel\":\"%s\",\"stages\":%d,\"resident_blocks\":%d,"
                "\"smem_bytes\":%lld,",
                bench, context.options.dtype.c_str(), context.options.layout.c_str(),
                static_cast<long long>(p.m), static_cast<long long>(p.n),
                static_cast<long long>(p.k), std::string(plan.kernel()).c_str(), plan.stages,
                plan.resident_blocks, static_cast<long long>(plan.smem_bytes));
  return text;
}

std::string LineSuffix(const Context& context) {
  return ",\"seed\":" + std::to_string(context.options.seed) + ",\"gpu\":\"" + context.traits.name +
         "\",\"driver\":" + std::to_string(context.traits.driver_version) + ",\"commit\":\"" +
         context.options.commit + "\",\"date\":\"" + context.date + "\"}";
}

// Every kernel that takes the types, at every stage count that fits.
std::vector<Plan> AllPlans(const Planner& planner, const GemmProblem& problem, int max_stages) {
  std::vector<Plan> plans;
  for (int row = 0; row < kKernelRows; ++row) {
    for (int stages = 1; stages <= max_stages; ++stages) {
      const StatusOr<Plan> plan =
          planner.PlanFor(problem, {.row = row, .stages = stages, .split_k = {}});
      if (plan.ok()) plans.push_back(*plan);
    }
  }
  return plans;
}

// One launch with the probe on, read back.
StatusOr<std::vector<unsigned long long>> CountersOf(const OperandSets& sets,
                                                     const GemmProblem& problem, const Plan& plan) {
  std::vector<unsigned long long> counters(kStallCounters);
  const size_t bytes = counters.size() * sizeof(counters[0]);
  GemmParams params = sets.Params(0);
  params.counters = sets.Counters(0);
  RETURN_IF_CUDA_ERROR(cudaMemset(params.counters, 0, bytes));
  RETURN_IF_ERROR(Launch(problem, plan, params, nullptr));
  RETURN_IF_CUDA_ERROR(cudaMemcpy(counters.data(), params.counters, bytes, cudaMemcpyDeviceToHost));
  return counters;
}

Status Sweep(const Context& context) {
  const Planner planner(context.traits);
  for (const int64_t k : context.options.k) {
    const GemmProblem problem = ProblemOf(context.options, k);
    ASSIGN_OR_RETURN(const OperandSets sets,
                     OperandSets::Create(problem, context.traits.l2_bytes, context.options.seed));
    const std::vector<Plan> plans = AllPlans(planner, problem, context.options.max_stages);
    ASSIGN_OR_RETURN(const Plan picked, planner.PlanFor(problem));
    std::vector<Enqueue> variants;
    for (const Plan& plan : plans) {
      variants.push_back([&sets, &problem, plan](int index, cudaStream_t stream) {
        return Launch(problem, plan, sets.Params(index), stream);
      });
    }
    ASSIGN_OR_RETURN(const std::vector<Timing> timings,
                     MeasureInterleaved(variants, context.options.measure));
    for (size_t i = 0; i < plans.size(); ++i) {
      ASSIGN_OR_RETURN(const auto counters, CountersOf(sets, problem, plans[i]));
      const bool is_pick = plans[i].row == picked.row && plans[i].stages == picked.stages;
      std::printf(
          "%s\"us\":%.3f,\"p5_us\":%.3f,\"p95_us\":%.3f,\"tflops\":%.1f,\"predicted_us\":%.3f,"
          "\"picked\":%s,\"wait_full\":%llu,\"wait_empty\":%llu,\"mainloop\":%llu,"
          "\"epilogue\":%llu%s\n",
          LinePrefix("stage-sweep", context, problem, plans[i]).c_str(), timings[i].median_us,
          timings[i].p5_us, timings[i].p95_us, problem.flops() / timings[i].median_us * 1e-6,
          plans[i].predicted_seconds * 1e6, is_pick ? "true" : "false", counters[0], counters[1],
          counters[2], counters[3], LineSuffix(context).c_str());
    }
    std::fflush(stdout);
  }
  return OkStatus();
}

Status ProbeCost(const Context& context) {
  const Planner planner(context.traits);
  for (const int64_t k : context.options.k) {
    const GemmProblem problem = ProblemOf(context.options, k);
    ASSIGN_OR_RETURN(const OperandSets sets,
                     OperandSets::Create(problem, context.traits.l2_bytes, context.options.seed));
    ASSIGN_OR_RETURN(const Plan plan, planner.PlanFor(problem));
    std::vector<Enqueue> variants;
    for (const bool on : {false, true}) {
      variants.push_back([&sets, &problem, plan, on](int index, cudaStream_t stream) {
        GemmParams params = sets.Params(index);
        if (on) params.counters = sets.Counters(index);
        return Launch(problem, plan, params, stream);
      });
    }
    ASSIGN_OR_RETURN(const std::vector<Timing> timings,
                     MeasureInterleaved(variants, context.options.measure));
    std::printf("%s\"off_us\":%.3f,\"on_us\":%.3f,\"ratio\":%.4f%s\n",
                LinePrefix("probe-cost", context, problem, plan).c_str(), timings[0].median_us,
                timings[1].median_us, timings[1].median_us / timings[0].median_us,
                LineSuffix(context).c_str());
  }
  return OkStatus();
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", &utc);
  return text;
}

Status Run(const Options& options, bool probe_cost) {
  ASSIGN_OR_RETURN(DeviceTraits traits, ProbeCudaDevice(0));
  RETURN_IF_CUDA_ERROR(cudaSetDevice(0));
  RETURN_IF_ERROR(PrepareKernels());
  const Context context{options, std::move(traits), Today()};
  return probe_cost ? ProbeCost(context) : Sweep(context);
}

}  // namespace
}  // namespace gemmd::bench

int main(int argc, char** argv) {
  gemmd::bench::Options options;
  CLI::App app("Device time of gemmd's kernels, as JSON lines");
  app.require_subcommand(1);
  CLI::App* sweep = app.add_subcommand("sweep", "time against stage count");
  CLI::App* probe_cost = app.add_subcommand("probe-cost", "stall probe on against off");
  for (CLI::App* command : {sweep, probe_cost}) {
    command->add_option("--m", options.m)->check(CLI::PositiveNumber);
    command->add_option("--n", options.n)->check(CLI::PositiveNumber);
    command->add_option("--k", options.k)->check(CLI::PositiveNumber);
    command->add_option("--dtype", options.dtype)->check(CLI::IsMember({"bf16", "f16", "f32"}));
    command->add_option("--layout", options.layout)->check(CLI::IsMember({"NN", "NT", "TN", "TT"}));
    command->add_option("--max-stages", options.max_stages)->check(CLI::PositiveNumber);
    command->add_option("--rounds", options.measure.rounds)->check(CLI::PositiveNumber);
    command->add_option("--seed", options.seed);
    command->add_option("--commit", options.commit, "written into each line");
  }
  CLI11_PARSE(app, argc, argv);
  const gemmd::Status status = gemmd::bench::Run(options, probe_cost->parsed());
  if (!status.ok()) std::fprintf(stderr, "gemmd_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
