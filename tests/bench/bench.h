// The benches of gemmd_bench. Each appends its lines to context.out and prints for people on
// standard error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/device_traits.h"
#include "kernels/core/json.h"
#include "kernels/core/shape_list.h"
#include "kernels/core/status.h"
#include "kernels/cuda/measure.h"
#include "kernels/plan/plan.h"
#include "tests/bench/line_writer.h"

namespace gemmd::bench {

struct BenchContext {
  const LineWriter& out;
  DeviceTraits traits;  // of the current device, whose kernels are prepared
  TimingOptions measure;
  uint64_t seed = 1;
  std::string commit;
  std::string date;
};

inline double Us(double seconds) { return seconds * 1e6; }

// Begins a line with the bench, and the shape that it is of.
inline Json ShapeLine(std::string_view bench, const NamedProblem& shape) {
  return Json::Object()
      .Set("bench", bench)
      .Set("shape", shape.name)
      .Set("dtype", shape.dtype)
      .Set("layout", OpsName(shape.problem))
      .Set("m", shape.problem.m)
      .Set("n", shape.problem.n)
      .Set("k", shape.problem.k)
      .Set("batch", shape.problem.batch);
}

inline Json& AddPlan(Json& line, const Plan& plan) {
  return line.Set("kernel", plan.kernel())
      .Set("stages", plan.stages)
      .Set("split_k", plan.split_k)
      .Set("pair", plan.pair);
}

// Ends a line with what it was measured on: gpu, driver, commit, date.
inline Json& AddMachine(Json& line, const BenchContext& context) {
  return line.Set("gpu", context.traits.name)
      .Set("driver", context.traits.driver_version)
      .Set("commit", context.commit)
      .Set("date", context.date);
}

struct SweepOptions {
  int64_t m = 4096, n = 4096;
  std::vector<int64_t> k = {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
  std::string dtype = "bf16";  // bf16, f16 or f32
  std::string layout = "NN";   // NN, NT, TN or TT
  int max_stages = 5;
};

// Time against stage count, for each kernel that takes the type, over K.
Status RunSweep(const SweepOptions& options, const BenchContext& context);

struct ShapesOptions {
  std::string file;               // as shape_list.h says
  std::vector<std::string> rows;  // picks, as SelectShapes takes them
  std::optional<int> kernel;      // row of kKernelTable; absent: the planner's choice
  std::optional<int> stages;
  std::optional<int> split_k;

  PlanConstraints constraints() const {
    return {.row = kernel, .stages = stages, .split_k = split_k};
  }
};

// Each shape of a file beside cuBLASLt, every result checked. A shape that fails or is computed
// wrong does not stop the others; INTERNAL at the end counts them.
Status RunShapes(const ShapesOptions& options, const BenchContext& context);

// The stall probe on against off, for each shape of a file that has a kernel, on one plan. Rounds
// are fewer where a shape takes long. A kernel without a ring has no probe: its line shows what
// equal variants differ by.
Status RunProbeCost(const ShapesOptions& options, const BenchContext& context);

struct PlansOptions {
  ShapesOptions shapes;
  int most = 24;        // plans of a shape
  double within = 2.0;  // times the fastest's predicted time
};

// Predicted against measured time of the plans that the model thinks best, for each shape; of those
// that differ in the stage count alone, of one.
Status RunPlans(const PlansOptions& options, const BenchContext& context);

// What sampling program counters costs launches in a row: none, at the server's default rate and at
// the fullest, in turns.
Status RunSamplingCost(const ShapesOptions& options, const BenchContext& context);
// What the probe and the samples say of each stage count of the plan's kernel, at one part of K:
// where the profiler's figures can be put beside.
Status RunStallCheck(const ShapesOptions& options, const BenchContext& context);

struct SelectionOptions {
  int count = 200;             // of random shapes
  int64_t max_extent = 16384;  // of m, n and k, which are log-uniform from 1 on
};

// What the model and tuning pick for random shapes, in bf16 and fp16 and all layouts, beside the
// fastest of all plans, measured in one run.
Status RunSelection(const SelectionOptions& options, const BenchContext& context);

// What calibration measures: every point, and what the model takes from them.
Status RunCalibrate(const BenchContext& context);

}  // namespace gemmd::bench
