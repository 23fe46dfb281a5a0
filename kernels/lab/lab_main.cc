// gemmd_lab: the pipeline laboratory. `gemmctl lab` starts it.
//
//   gemmd_lab model      what stages buy, by arithmetic and, on a device, measured
//   gemmd_lab ladder     one tile at every stage count, load and computing measured alone
//   gemmd_lab residency  two stages against four, with and without a loss of resident blocks
//   gemmd_lab hazard     the ring without one of its edges, against sums from the host
//   gemmd_lab timeline   when copies land and what warps wait for, as a trace and a picture
//
// Exit codes: see kExitCodes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "kernels/core/status.h"
#include "kernels/lab/experiments.h"
#include "kernels/lab/production.h"
#include "kernels/plan/kernel_table.h"

#ifndef GEMMD_VERSION
#error "GEMMD_VERSION comes from the build"
#endif

namespace gemmd::lab {
namespace {

enum ExitCode : int { kExitOk = 0, kExitBadInput = 1, kExitDevice = 2, kExitWrong = 3 };
constexpr char kExitCodes[] =
    "Exit codes: 0; 1 bad input, or output that cannot be written; 2 no usable device, or it "
    "failed; 3 hazard: the ring with both of its edges was wrong.";

int Fail(const Status& status) {
  std::fprintf(stderr, "gemmd_lab: %s\n", status.ToString().c_str());
  const bool bad_input =
      status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kOutOfRange ||
      status.code() == StatusCode::kNotFound || status.code() == StatusCode::kPermissionDenied;
  if (status.code() == StatusCode::kDataLoss) return kExitWrong;
  return bad_input ? kExitBadInput : kExitDevice;
}

// Clocks from `least` to a million. CLI11's own range lets NaN pass.
CLI::Validator ClocksFrom(int least) {
  constexpr int kMost = 1000000;
  const std::string range = std::to_string(least) + " to " + std::to_string(kMost);
  return {[least, range](const std::string& text) -> std::string {
            double clocks = 0;
            const bool number = CLI::detail::lexical_cast(text, clocks);
            const bool in_range = clocks >= least && clocks <= kMost && !std::signbit(clocks);
            if (number && in_range) return {};
            return "Value " + text + " not in range " + range;
          },
          "FLOAT in [" + range + "]"};
}

std::vector<std::string> TracedNames() {
  std::vector<std::string> names;
  for (const int row : TracedRows()) names.emplace_back(kKernelTable[row].name);
  return names;
}

int Main(int argc, char** argv) {
  CLI::App app("The pipeline laboratory: see the ring of stages move, and break it.", "gemmd_lab");
  app.set_version_flag("--version", "gemmd_lab " GEMMD_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(kExitCodes);
  Common common;
  app.add_option("--device", common.device, "Ordinal of the CUDA device")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  std::string mechanism;
  CLI::Option* const copies =
      app.add_option("--mechanism", mechanism,
                     "How panels are copied; without it, in every way that the device has")
          ->check(CLI::IsMember({Name(Mechanism::kCpAsync), Name(Mechanism::kTma)}));
  app.add_option("--rounds", common.rounds, "Runs of each variant, in turns; medians are shown")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_flag("--json", common.json, "Print one JSON object");
  app.add_option("--commit", common.commit, "Written into the JSON");
  std::function<Status()> run;

  ModelOptions model;
  CLI::App* verb = app.add_subcommand("model", "What stages buy a tile of given L and C");
  verb->add_option("--load", model.load_clocks,
                   "L: clocks from a slot's being free to its next tile's landing")
      ->check(ClocksFrom(0))
      ->capture_default_str();
  verb->add_option("--compute", model.compute_clocks, "C: clocks to compute a tile")
      ->check(ClocksFrom(0))
      ->capture_default_str();
  verb->add_option("--max-stages", model.max_stages)
      ->check(CLI::Range(1, kMaxStages))
      ->capture_default_str();
  verb->add_option("--stage-bytes", model.stage_bytes, "Shared memory of a stage")
      ->check(CLI::Range(kPanelBytes, 1 << 20))
      ->capture_default_str();
  verb->add_option("--steps", model.steps, "K, in tiles")
      ->check(CLI::Range(1, 1 << 18))
      ->capture_default_str();
  verb->add_flag("!--no-measure", model.measure, "Arithmetic alone");
  verb->callback([&] { run = [&] { return RunModel(common, model); }; });

  LadderOptions ladder;
  ladder.panels = kCachedPanels;
  double ladder_compute = 0;
  verb = app.add_subcommand("ladder", "One tile at every stage count");
  CLI::Option* const work =
      verb->add_option("--work", ladder.work,
                       "Rounds of work behind each sum; without it and --compute, C is made L")
          ->check(CLI::Range(0, kMaxWork))
          ->capture_default_str();
  verb->add_option("--compute", ladder_compute,
                   "Sets --work so that computing takes so many clocks")
      ->check(ClocksFrom(0))
      ->excludes(work);
  verb->add_option("--load", ladder.load_clocks, "Clocks that a load takes at least")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  verb->add_option("--panels", ladder.panels,
                   "Panels that a block walks, over and over; 0: all of its strip")
      ->check(CLI::Range(0, 128))
      ->capture_default_str();
  verb->add_option("--steps", ladder.steps, "K, in tiles")
      ->check(CLI::Range(1, 1 << 18))
      ->capture_default_str();
  verb->callback([&] { run = [&] { return RunLadder(common, ladder, ladder_compute); }; });

  ResidencyOptions residency;
  TileCost residency_cost = {.load = 500, .compute = 220};
  verb =
      app.add_subcommand("residency", "Two stages against four, with and without loss of blocks");
  verb->add_option("--load", residency_cost.load, "Clocks that a load takes, or a multiple")
      ->check(ClocksFrom(1))
      ->capture_default_str();
  verb->add_option("--compute", residency_cost.compute, "Clocks to compute a tile, as often")
      ->check(ClocksFrom(1))
      ->capture_default_str();
  verb->add_option("--steps", residency.steps, "K, in tiles: a list")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 18))
      ->capture_default_str();
  verb->callback([&] { run = [&] { return RunResidency(common, residency, residency_cost); }; });

  HazardOptions hazard;
  hazard.delays = {0, 250, 500, 1000, 2000, 4000};
  std::vector<std::string> faults, names;
  for (const Hazard& one : Hazards()) names.emplace_back(one.name);
  verb = app.add_subcommand("hazard", "The ring without one of its edges");
  verb->add_option("--iterations", hazard.iterations, "Of each line, with words of their own")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  verb->add_option("--delay", hazard.delays, "Clocks of the last warp before it reads: a list")
      ->delimiter(',')
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  verb->add_option("--hazard", faults, "Which edges are left out: a list; all without it")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  verb->add_option("--seed", hazard.seed, "Of the first iteration's words")
      ->check(CLI::Range(uint32_t{0}, std::numeric_limits<uint32_t>::max()))
      ->capture_default_str();
  verb->add_option("--stages", hazard.stages)
      ->check(CLI::Range(1, kMaxStages))
      ->capture_default_str();
  verb->callback([&] { run = [&] { return RunHazard(common, hazard); }; });

  TimelineOptions timeline;
  verb = app.add_subcommand("timeline", "Copies, waits and work of blocks over time");
  verb->add_option("--stages", timeline.stages, "A list; one picture each")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxStages))
      ->capture_default_str();
  verb->add_option("--drawn-steps", timeline.drawn_steps, "Of all, in the picture")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  verb->add_option("--block", timeline.blocks, "A list of blocks of one launch; one picture each")
      ->delimiter(',')
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  verb->add_option("--steps", timeline.steps, "K of the laboratory's ring, in tiles")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_option("--load", timeline.load_clocks, "Clocks that its load takes, or a multiple")
      ->check(ClocksFrom(1))
      ->capture_default_str();
  verb->add_option("--compute", timeline.compute_clocks, "Clocks to compute its tile, as often")
      ->check(ClocksFrom(1))
      ->capture_default_str();
  CLI::Option* const kernel =
      verb->add_option("--kernel", timeline.kernel,
                       "A production kernel, by its name; without it, the laboratory's ring")
          ->check(CLI::IsMember(TracedNames()));
  kernel->excludes(copies);
  for (const char* of_the_ring : {"--steps", "--load", "--compute"}) {
    kernel->excludes(verb->get_option(of_the_ring));
  }
  for (const auto& [name, extent] :
       {std::pair("-m", &timeline.m), {"-n", &timeline.n}, {"-k", &timeline.k}}) {
    verb->add_option(name, *extent, "Of that kernel's product")
        ->check(CLI::Range(1, 65536))
        ->capture_default_str()
        ->needs(kernel);
  }
  const CLI::Validator a_file(
      [](const std::string& path) { return path.empty() ? "names no file" : std::string(); },
      "FILE");
  verb->add_option("--trace", timeline.trace, "For the Chrome trace; stdout without any file")
      ->check(a_file);
  verb->add_option("--svg", timeline.svg, "For the picture")->check(a_file);
  verb->callback([&] { run = [&] { return RunTimeline(common, timeline); }; });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitBadInput;
  }
  for (const Mechanism one : {Mechanism::kCpAsync, Mechanism::kTma}) {
    if (mechanism == Name(one)) common.mechanism = one;
  }
  for (const Hazard& one : Hazards()) {
    const bool named = std::find(faults.begin(), faults.end(), one.name) != faults.end();
    if (named) hazard.faults.push_back(one.fault);
  }
  const Status status = run();
  if (!status.ok()) return Fail(status);
  if (std::fflush(stdout) != 0) {
    std::fprintf(stderr, "gemmd_lab: cannot write stdout\n");
    return kExitBadInput;
  }
  return kExitOk;
}

}  // namespace
}  // namespace gemmd::lab

int main(int argc, char** argv) { return gemmd::lab::Main(argc, argv); }
