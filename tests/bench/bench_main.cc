// gemmd_bench: device time of kernels, as JSON lines.
//
//   gemmd_bench shapes      a list of shapes beside cuBLASLt, every result checked
//   gemmd_bench sweep       time against stage count, for each kernel, over K
//   gemmd_bench plans       the plans that the model thinks best, predicted and measured
//   gemmd_bench selection   what model and tuning pick for random shapes, beside the fastest plan
//   gemmd_bench calibrate   what the model takes from a device, and the points that it comes from
//   gemmd_bench probe-cost  a list of shapes with the stall probe on and off, interleaved
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <getopt.h>

#include "kernels/core/text.h"
#include "kernels/cuda/calibration.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/cupti_sampler.h"
#include "kernels/cuda/device_probe.h"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/kernel_table.h"
#include "tests/bench/bench.h"

namespace gemmd::bench {
namespace {

enum class Command : uint8_t {
  kShapes,
  kPlans,
  kSweep,
  kProbeCost,
  kSelection,
  kCalibrate,
  kStallCheck,
  kSamplingCost
};

struct CommandSpec {
  const char* name;
  Command command;
  bool takes_shapes;
  int rounds;  // unless the options say otherwise; 0: the bench's own
};
constexpr CommandSpec kCommands[] = {
    {"shapes", Command::kShapes, true, 15},
    {"plans", Command::kPlans, true, 7},
    {"sweep", Command::kSweep, false, 7},
    {"probe-cost", Command::kProbeCost, true, 101},
    {"selection", Command::kSelection, false, 0},
    {"calibrate", Command::kCalibrate, false, kCalibrationRounds},
    {"stall-check", Command::kStallCheck, true, 31},
    {"pc-sampling-cost", Command::kSamplingCost, true, 5},
};

struct Options {
  PlansOptions plans;
  SweepOptions sweep;
  SelectionOptions selection;
  int rounds = 0;
  uint64_t seed = 1;
  std::string commit = "unknown";
  std::string out;
};

struct OptionSpec {
  const char* name;
  const char* argument;
  const char* help;
  std::function<Status(std::string_view)> set;
};

template <typename Int>
Status ParseInt(const char* name, std::string_view text, Int least, Int most, Int& to) {
  const std::optional<Int> value = ParseNumber<Int>(text);
  if (!value || *value < least || *value > most) {
    return InvalidArgument(name, "--" + std::string(name) + "=" + std::string(text) +
                                     " is not a whole number from " + std::to_string(least) +
                                     " to " + std::to_string(most));
  }
  to = *value;
  return OkStatus();
}

Status ParseWord(const char* name, std::string_view text,
                 const std::vector<std::string_view>& words, std::string& to) {
  std::string message = "--" + std::string(name) + "=" + std::string(text) + " is none of";
  for (const std::string_view word : words) {
    if (word == text) {
      to = text;
      return OkStatus();
    }
    message += " " + std::string(word);
  }
  return InvalidArgument(name, message);
}

Status ParseExtents(std::string_view text, std::vector<int64_t>& to) {
  to.clear();
  for (const std::string_view field : Split(text, ',')) {
    int64_t extent = 0;
    RETURN_IF_ERROR(ParseInt<int64_t>("k", field, 1, kMaxExtent, extent));
    to.push_back(extent);
  }
  return OkStatus();
}

std::vector<OptionSpec> ShapesSpecs(ShapesOptions& o) {
  return {
      {"shapes", "FILE", "name,dtype,layout,M,N,K[,BATCH] a line (required)",
       [&o](std::string_view text) {
         o.file = text;
         return OkStatus();
       }},
      {"rows", "NAME[:DTYPE],...", "only these",
       [&o](std::string_view text) {
         for (const std::string_view row : Split(text, ',')) o.rows.emplace_back(row);
         return OkStatus();
       }},
      {"kernel", "NAME", "instead of the planner's choice",
       [&o](std::string_view text) {
         const int row = RowByName(text);
         if (row < 0) {
           return InvalidArgument("kernel", "--kernel=" + std::string(text) + " is no kernel");
         }
         o.kernel = row;
         return OkStatus();
       }},
      {"stages", "S", "instead of the planner's choice",
       [&o](std::string_view text) {
         int stages = 0;
         RETURN_IF_ERROR(ParseInt("stages", text, 1, 1000, stages));
         o.stages = stages;
         return OkStatus();
       }},
      {"split-k", "PARTS", "instead of the planner's choice",
       [&o](std::string_view text) {
         int split_k = 0;
         RETURN_IF_ERROR(ParseInt("split-k", text, 1, 1000, split_k));
         o.split_k = split_k;
         return OkStatus();
       }},
  };
}

std::vector<OptionSpec> PlansSpecs(PlansOptions& o) {
  std::vector<OptionSpec> specs = ShapesSpecs(o.shapes);
  specs.push_back({"most", "PLANS", "of a shape (24)", [&o](std::string_view text) {
                     return ParseInt("most", text, 1, 1000, o.most);
                   }});
  return specs;
}

std::vector<OptionSpec> SweepSpecs(SweepOptions& o) {
  return {
      {"m", "M", "4096",
       [&o](std::string_view text) { return ParseInt<int64_t>("m", text, 1, kMaxExtent, o.m); }},
      {"n", "N", "4096",
       [&o](std::string_view text) { return ParseInt<int64_t>("n", text, 1, kMaxExtent, o.n); }},
      {"k", "K,...", "64 to 16384, doubling",
       [&o](std::string_view text) { return ParseExtents(text, o.k); }},
      {"dtype", "TYPE", "bf16, f16 or f32",
       [&o](std::string_view text) {
         return ParseWord("dtype", text, {"bf16", "f16", "f32"}, o.dtype);
       }},
      {"layout", "OPS", "NN, NT, TN or TT",
       [&o](std::string_view text) {
         return ParseWord("layout", text, {"NN", "NT", "TN", "TT"}, o.layout);
       }},
      {"max-stages", "S", "5",
       [&o](std::string_view text) { return ParseInt("max-stages", text, 1, 1000, o.max_stages); }},
  };
}

std::vector<OptionSpec> SelectionSpecs(SelectionOptions& o) {
  return {
      {"count", "N", "random shapes (200)",
       [&o](std::string_view text) { return ParseInt("count", text, 1, 100000, o.count); }},
      {"max-extent", "N", "of m, n and k (16384)",
       [&o](std::string_view text) {
         return ParseInt<int64_t>("max-extent", text, 1, 65536, o.max_extent);
       }},
  };
}

std::vector<OptionSpec> OwnSpecs(Command command, Options& o) {
  switch (command) {
    case Command::kShapes:
    case Command::kStallCheck:
    case Command::kSamplingCost:
    case Command::kProbeCost: return ShapesSpecs(o.plans.shapes);
    case Command::kPlans: return PlansSpecs(o.plans);
    case Command::kSelection: return SelectionSpecs(o.selection);
    case Command::kCalibrate: return {};
    case Command::kSweep: return SweepSpecs(o.sweep);
  }
  return {};
}

std::vector<OptionSpec> SpecsOf(Command command, Options& o) {
  std::vector<OptionSpec> specs = OwnSpecs(command, o);
  specs.push_back({"out", "FILE", "append the lines here instead of printing them",
                   [&o](std::string_view text) {
                     o.out = text;
                     return OkStatus();
                   }});
  specs.push_back({"rounds", "N", "samples of each variant", [&o](std::string_view text) {
                     return ParseInt("rounds", text, 1, 10000, o.rounds);
                   }});
  specs.push_back(
      {"seed", "N", "of the operands and of what is checked", [&o](std::string_view text) {
         return ParseInt<uint64_t>("seed", text, 0, std::numeric_limits<int64_t>::max(), o.seed);
       }});
  specs.push_back({"commit", "C", "written into each line", [&o](std::string_view text) {
                     o.commit = text;
                     return OkStatus();
                   }});
  return specs;
}

void PrintUsage(std::FILE* to) {
  Options options;
  for (const auto& [name, command, takes_shapes, rounds] : kCommands) {
    std::fprintf(to, "gemmd_bench %s\n", name);
    for (const OptionSpec& spec : SpecsOf(command, options)) {
      const std::string left = std::string(spec.name) + " " + spec.argument;
      std::fprintf(to, "  --%-24s %s\n", left.c_str(), spec.help);
    }
  }
}

// argv[0] is the command's name. getopt_long prints what it does not know.
Status ParseOptions(int argc, char** argv, const std::vector<OptionSpec>& specs) {
  std::vector<option> table;
  for (const OptionSpec& spec : specs) {
    table.push_back({spec.name, required_argument, nullptr, static_cast<int>(table.size()) + 1});
  }
  table.push_back({nullptr, 0, nullptr, 0});
  for (;;) {
    const int found = getopt_long(argc, argv, "", table.data(), nullptr);
    if (found == -1) break;
    if (found == '?') return InvalidArgument("options", "unknown option");
    RETURN_IF_ERROR(specs[static_cast<size_t>(found) - 1].set(optarg));
  }
  if (optind < argc) {
    return InvalidArgument("options", std::string(argv[optind]) + " is no option");
  }
  return OkStatus();
}

Status Run(const CommandSpec& spec, const Options& options) {
  if (spec.takes_shapes && options.plans.shapes.file.empty()) {
    return InvalidArgument("shapes", "--shapes is required");
  }
  ASSIGN_OR_RETURN(const LineWriter out, LineWriter::Create(options.out));
  ASSIGN_OR_RETURN(DeviceTraits traits, ProbeCudaDevice(0));
  RETURN_IF_CUDA_ERROR(cudaSetDevice(0));
  // Code that was loaded before is not known by its parts; where there is no CUPTI, the bench says
  // so.
  if (spec.command == Command::kStallCheck) (void)WatchLoadedCode();
  RETURN_IF_ERROR(PrepareKernels());
  BenchContext context{.out = out,
                       .traits = std::move(traits),
                       .measure = {.sample_seconds = 3e-3},
                       .seed = options.seed,
                       .commit = options.commit,
                       .date = UtcDate()};
  context.measure.rounds = options.rounds;
  switch (spec.command) {
    case Command::kShapes: return RunShapes(options.plans.shapes, context);
    case Command::kPlans: return RunPlans(options.plans, context);
    case Command::kSweep: return RunSweep(options.sweep, context);
    case Command::kProbeCost: return RunProbeCost(options.plans.shapes, context);
    case Command::kSelection: return RunSelection(options.selection, context);
    case Command::kCalibrate: return RunCalibrate(context);
    case Command::kStallCheck: return RunStallCheck(options.plans.shapes, context);
    case Command::kSamplingCost: return RunSamplingCost(options.plans.shapes, context);
  }
  return OkStatus();
}

int Main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  const auto* const spec = std::ranges::find(kCommands, name, &CommandSpec::name);
  if (spec == std::end(kCommands)) {
    const bool asked = name == "--help";
    PrintUsage(asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  Options options;
  options.rounds = spec->rounds;
  Status status = ParseOptions(argc - 1, argv + 1, SpecsOf(spec->command, options));
  const bool usable = status.ok();
  if (usable) status = Run(*spec, options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "gemmd_bench: %s\n", status.ToString().c_str());
  return usable ? 1 : 2;
}

}  // namespace
}  // namespace gemmd::bench

int main(int argc, char** argv) { return gemmd::bench::Main(argc, argv); }
