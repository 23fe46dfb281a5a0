// gemmd_lab: the pipeline laboratory. `gemmctl lab` starts it.
//
//   gemmd_lab model      what stages buy, by arithmetic and, on a device, measured
//   gemmd_lab ladder     one tile at every stage count, load and computing measured alone
//   gemmd_lab residency  two stages against four, with and without a loss of resident blocks
//   gemmd_lab hazard     the ring without one of its edges, against sums from the host
//   gemmd_lab timeline   when copies land and what warps wait for, as a trace and a picture
//
// Exit codes: 0; 1 bad input; 2 no usable device, or the device failed; 3 the whole ring was wrong.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "kernels/core/files.h"
#include "kernels/core/json.h"
#include "kernels/core/status.h"
#include "kernels/core/tables.h"
#include "kernels/core/text.h"
#include "kernels/lab/hazard.h"
#include "kernels/lab/lab_run.h"
#include "kernels/lab/ladder.h"
#include "kernels/lab/production.h"
#include "kernels/lab/ring_model.h"
#include "kernels/lab/timeline.h"
#include "kernels/plan/kernel_table.h"

#ifndef GEMMD_VERSION
#error "GEMMD_VERSION comes from the build"
#endif

namespace gemmd::lab {
namespace {

enum ExitCode : int { kExitOk = 0, kExitBadInput = 1, kExitDevice = 2, kExitWrong = 3 };

// What every experiment takes.
struct Common {
  int device = 0;
  bool json = false;
  std::string commit = "unknown";
  std::optional<Mechanism> mechanism;  // none: all that the device has
  int rounds = 7;
  int exit_code = kExitOk;  // of an experiment that ran and found something
};

std::string Today() {
  const std::time_t now = std::time(nullptr);
  char text[11];
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

// Where and when, then what `results` holds under `key`.
void Print(const Common& common, const LabDevice& device, const char* key, const Json& results) {
  const Json document = Json::Object()
                            .Set("bench", std::string("lab-") + key)
                            .Set("gpu", device.traits().name)
                            .Set("commit", common.commit)
                            .Set("date", Today())
                            .Set("rows", results);
  std::printf("%s\n", document.text().c_str());
}

StatusOr<LabDevice> OpenDevice(const Common& common, const ArrayShape& shape = {}) {
  ASSIGN_OR_RETURN(LabDevice device, LabDevice::Create(common.device, shape));
  RETURN_IF_ERROR(device.Fill(1));
  return device;
}

// The one that was named, or each that the device has.
std::vector<Mechanism> MechanismsOf(const Common& common, const LabDevice& device) {
  if (common.mechanism) return {*common.mechanism};
  std::vector<Mechanism> all = {Mechanism::kCpAsync};
  if (device.Has(Mechanism::kTma)) all.push_back(Mechanism::kTma);
  return all;
}

struct ModelOptions {
  double load_clocks = 500, compute_clocks = 220;
  int max_stages = kMaxStages;
  int stage_bytes = kPanelBytes;
  int steps = 512;
  bool measure = true;
};

std::string OutlookText(const std::vector<StageOutlook>& outlook, const DeviceTraits& traits) {
  std::vector<std::vector<std::string>> table = {
      {"stages", "uncovered", "clocks a tile", "shared memory", "blocks an SM"}};
  for (const StageOutlook& at : outlook) {
    table.push_back({std::to_string(at.stages), Fixed(at.uncovered_clocks, 0),
                     Fixed(at.clocks_per_tile, 0), Bytes(at.smem_bytes),
                     std::to_string(at.resident_blocks)});
  }
  return TableText(table) + "Residency is that of " + traits.name + ".\n";
}

Json OutlookJson(const std::vector<StageOutlook>& outlook) {
  Json rows = Json::Array();
  for (const StageOutlook& at : outlook) {
    rows.Add(Json::Object()
                 .Set("stages", at.stages)
                 .Set("uncovered_clocks", at.uncovered_clocks)
                 .Set("clocks_per_tile", at.clocks_per_tile)
                 .Set("smem_bytes", at.smem_bytes)
                 .Set("resident_blocks", at.resident_blocks)
                 .Set("sm_clocks_per_tile", at.sm_clocks_per_tile));
  }
  return rows;
}

// Sets the kernel's L and C as near to those asked for as it goes, and measures.
StatusOr<Ladder> MeasureExample(LabDevice& device, const ModelOptions& options,
                                const Common& common, Mechanism mechanism) {
  LadderOptions ladder;
  ladder.mechanism = mechanism;
  ladder.load_clocks = static_cast<uint32_t>(options.load_clocks);
  ladder.steps = options.steps;
  ladder.stage_bytes = options.stage_bytes;
  ladder.max_stages = options.max_stages;
  ladder.rounds = common.rounds;
  ASSIGN_OR_RETURN(ladder.work, WorkFor(device, ladder, options.compute_clocks));
  return MeasureLadder(device, ladder);
}

Status RunModel(Common& common, const ModelOptions& options) {
  const TileCost cost = {.load = options.load_clocks, .compute = options.compute_clocks};
  StatusOr<LabDevice> device = OpenDevice(common);
  const DeviceTraits traits = device.ok() ? device->traits() : H200Traits();
  const std::vector<StageOutlook> outlook =
      OutlookOf(cost, options.max_stages, options.stage_bytes, kFixedBytes, kThreads, traits);
  if (!common.json) {
    std::printf("L = %s clocks to load a tile, C = %s to compute it; %d stages cover L.\n%s",
                Short(cost.load).c_str(), Short(cost.compute).c_str(), CoveringStages(cost),
                OutlookText(outlook, traits).c_str());
  }
  if (!device.ok() || !options.measure) {
    if (common.json) std::printf("%s\n", OutlookJson(outlook).text().c_str());
    if (options.measure) {
      std::fprintf(stderr, "gemmd_lab: nothing measured: %s\n", device.status().ToString().c_str());
    }
    return OkStatus();
  }
  Json rows = Json::Array();
  for (const Mechanism mechanism : MechanismsOf(common, *device)) {
    ASSIGN_OR_RETURN(const Ladder ladder, MeasureExample(*device, options, common, mechanism));
    if (!common.json) std::printf("\n%s", LadderText(ladder).c_str());
    rows.Add(LadderJson(ladder));
  }
  if (common.json) {
    Print(common, *device, "model",
          Json::Object().Set("outlook", OutlookJson(outlook)).Set("measured", rows));
  }
  return OkStatus();
}

Status RunLadder(Common& common, LadderOptions options, double compute_clocks) {
  ASSIGN_OR_RETURN(LabDevice device, OpenDevice(common));
  Json rows = Json::Array();
  for (const Mechanism mechanism : MechanismsOf(common, device)) {
    options.mechanism = mechanism;
    options.rounds = common.rounds;
    if (options.panels == 0) options.panels = device.shape().panels;
    if (compute_clocks > 0) {
      ASSIGN_OR_RETURN(options.work, WorkFor(device, options, compute_clocks));
    }
    ASSIGN_OR_RETURN(const Ladder ladder, MeasureLadder(device, options));
    if (!common.json) std::printf("%s\n", LadderText(ladder).c_str());
    rows.Add(LadderJson(ladder));
  }
  if (common.json) Print(common, device, "ladder", rows);
  return OkStatus();
}

Status RunResidency(Common& common, ResidencyOptions options, double compute_clocks) {
  ASSIGN_OR_RETURN(LabDevice device, OpenDevice(common));
  Json rows = Json::Array();
  for (const Mechanism mechanism : MechanismsOf(common, device)) {
    options.mechanism = mechanism;
    options.rounds = common.rounds;
    LadderOptions alone;
    alone.mechanism = mechanism;
    alone.rounds = common.rounds;
    ASSIGN_OR_RETURN(options.work, WorkFor(device, alone, compute_clocks));
    ASSIGN_OR_RETURN(const std::vector<ResidencyPoint> points, MeasureResidency(device, options));
    if (!common.json) std::printf("%s\n%s\n", Name(mechanism), ResidencyText(points).c_str());
    for (const ResidencyPoint& point : points) {
      rows.Add(ResidencyJson(point)
                   .Set("mechanism", Name(mechanism))
                   .Set("load_floor_clocks", options.load_clocks)
                   .Set("compute_clocks", compute_clocks));
    }
  }
  if (common.json) Print(common, device, "residency", rows);
  return OkStatus();
}

Status RunHazard(Common& common, HazardOptions options) {
  ASSIGN_OR_RETURN(LabDevice device, OpenDevice(common));
  options.mechanisms = MechanismsOf(common, device);
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  ASSIGN_OR_RETURN(const std::vector<HazardRow> rows, RunHazards(device, options));
  if (common.json) {
    Json lines = Json::Array();
    for (const HazardRow& row : rows) lines.Add(HazardJson(row));
    Print(common, device, "hazard", lines);
  } else {
    std::printf("seed %u, %s of an array of %s\n%s", options.seed,
                Count(options.iterations, "iteration").c_str(),
                Bytes(device.shape().words() * 4).c_str(), HazardReport(rows).c_str());
  }
  const auto wrong = [](const HazardRow& row) { return row.correct_failures > 0; };
  if (std::any_of(rows.begin(), rows.end(), wrong)) {
    std::fprintf(stderr, "gemmd_lab: the ring with both of its edges gave wrong sums\n");
    common.exit_code = kExitWrong;
  }
  return OkStatus();
}

struct TimelineOptions {
  std::vector<int> stages = {1, 2, 4};
  int steps = 16;       // of the laboratory's ring
  int drawn_steps = 8;  // of all, in the picture
  int block = 0;
  uint32_t load_clocks = 0;
  double compute_clocks = 220;
  std::string kernel;                    // a production one; empty: the laboratory's ring
  int64_t m = 1024, n = 1024, k = 1024;  // of its product
  std::string trace, svg;                // paths; empty: none
};

StatusOr<std::vector<Picture>> TraceKernel(const DeviceTraits& traits,
                                           const TimelineOptions& options) {
  std::string known;
  for (const int row : TracedRows(traits)) {
    const std::string_view name = kKernelTable[row].name;
    if (name == options.kernel) {
      std::vector<Picture> pictures;
      for (const int stages : options.stages) {
        ASSIGN_OR_RETURN(Picture picture,
                         TraceProduct(traits, row, stages, options.m, options.n, options.k));
        pictures.push_back(std::move(picture));
      }
      return pictures;
    }
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return InvalidArgument("kernel",
                         "kernel=" + options.kernel + " is none of those traced here: " + known);
}

StatusOr<std::vector<Picture>> TraceRing(LabDevice& device, const Common& common,
                                         const TimelineOptions& options) {
  const Mechanism mechanism = MechanismsOf(common, device).back();
  LadderOptions alone;
  alone.mechanism = mechanism;
  alone.rounds = common.rounds;
  ASSIGN_OR_RETURN(const int work, WorkFor(device, alone, options.compute_clocks));
  std::vector<Picture> pictures;
  for (const int stages : options.stages) {
    Launch launch;
    launch.mechanism = mechanism;
    launch.blocks = std::max(device.traits().sm_count, options.block + 1);
    launch.steps = options.steps;
    launch.stages = stages;
    launch.work = work;
    launch.load_clocks = options.load_clocks;
    launch.trace_blocks = options.block + 1;
    ASSIGN_OR_RETURN(Outcome outcome, device.Run(launch));  // the first loads the kernel
    ASSIGN_OR_RETURN(outcome, device.Run(launch));
    pictures.push_back(PictureOf(TimelineOf(
        outcome.trace.data() + options.block * TraceWords(options.steps), options.steps, stages,
        std::string(Name(mechanism)) + ", S = " + std::to_string(stages) + ", block " +
            std::to_string(options.block))));
  }
  return pictures;
}

Status RunTimeline(Common& common, const TimelineOptions& options) {
  for (const std::string& path : {options.trace, options.svg}) {
    if (!path.empty()) RETURN_IF_ERROR(CheckWritable(path));
  }
  ASSIGN_OR_RETURN(LabDevice device, OpenDevice(common));
  ASSIGN_OR_RETURN(const std::vector<Picture> pictures,
                   options.kernel.empty() ? TraceRing(device, common, options)
                                          : TraceKernel(device.traits(), options));
  if (!options.trace.empty()) RETURN_IF_ERROR(WriteText(options.trace, ChromeTrace(pictures)));
  if (!options.svg.empty()) {
    RETURN_IF_ERROR(WriteText(options.svg, TimelineSvg(pictures, options.drawn_steps)));
  }
  if (options.trace.empty() && options.svg.empty()) {
    std::printf("%s", ChromeTrace(pictures).c_str());
  }
  return OkStatus();
}

int Fail(const Status& status) {
  std::fprintf(stderr, "gemmd_lab: %s\n", status.ToString().c_str());
  const bool bad_input =
      status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kOutOfRange ||
      status.code() == StatusCode::kNotFound || status.code() == StatusCode::kPermissionDenied;
  return bad_input ? kExitBadInput : kExitDevice;
}

int Main(int argc, char** argv) {
  CLI::App app("The pipeline laboratory: see the ring of stages move, and break it.", "gemmd_lab");
  app.set_version_flag("--version", "gemmd_lab " GEMMD_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  Common common;
  app.add_option("--device", common.device, "Ordinal of the CUDA device")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  std::string mechanism;
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
  verb->add_option("--load", model.load_clocks, "L: clocks from a tile's issue to its landing")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  verb->add_option("--compute", model.compute_clocks, "C: clocks to compute a tile")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  verb->add_option("--max-stages", model.max_stages)
      ->check(CLI::Range(1, kMaxStages))
      ->capture_default_str();
  verb->add_option("--stage-bytes", model.stage_bytes, "Shared memory of a stage")
      ->check(CLI::Range(kPanelBytes, 1 << 20))
      ->capture_default_str();
  verb->add_option("--steps", model.steps, "K, in tiles")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_flag("!--no-measure", model.measure, "Arithmetic alone");
  verb->callback([&] { run = [&] { return RunModel(common, model); }; });

  LadderOptions ladder;
  ladder.panels = 0;
  double ladder_compute = 0;
  verb = app.add_subcommand("ladder", "One tile at every stage count");
  verb->add_option("--work", ladder.work, "Rounds of work behind each sum")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  verb->add_option("--compute", ladder_compute,
                   "Sets --work so that computing takes so many clocks")
      ->check(CLI::Range(0.0, 1e6));
  verb->add_option("--load", ladder.load_clocks, "Clocks that a load takes at least")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  verb->add_option("--panels", ladder.panels,
                   "Panels that a block walks, over and over; 0: all of its strip")
      ->check(CLI::Range(0, 128))
      ->capture_default_str();
  verb->add_option("--steps", ladder.steps, "K, in tiles")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->callback([&] { run = [&] { return RunLadder(common, ladder, ladder_compute); }; });

  ResidencyOptions residency;
  residency.load_clocks = 500;
  double residency_compute = 220;
  verb =
      app.add_subcommand("residency", "Two stages against four, with and without loss of blocks");
  verb->add_option("--load", residency.load_clocks, "Clocks that a load takes at least")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  verb->add_option("--compute", residency_compute, "Clocks to compute a tile")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  verb->add_option("--steps", residency.steps, "K, in tiles: a list")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  verb->callback([&] { run = [&] { return RunResidency(common, residency, residency_compute); }; });

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
      ->check(CLI::Range(0, 100000000));
  verb->add_option("--hazard", faults, "Which edges are left out: a list; all without it")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  verb->add_option("--seed", hazard.seed, "Of the first iteration's words")->capture_default_str();
  verb->add_option("--stages", hazard.stages)
      ->check(CLI::Range(1, kMaxStages))
      ->capture_default_str();
  verb->callback([&] { run = [&] { return RunHazard(common, hazard); }; });

  TimelineOptions timeline;
  verb = app.add_subcommand("timeline", "Copies, waits and work of a block over time");
  verb->add_option("--stages", timeline.stages, "A list; one picture each")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxStages));
  verb->add_option("--steps", timeline.steps, "K, in tiles")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_option("--drawn-steps", timeline.drawn_steps, "Of these, in the picture")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  verb->add_option("--block", timeline.block, "Whose timeline")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  verb->add_option("--load", timeline.load_clocks, "Clocks that a load takes at least")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  verb->add_option("--compute", timeline.compute_clocks, "Clocks to compute a tile")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  verb->add_option("--kernel", timeline.kernel,
                   "A production kernel, by its name; without it, the laboratory's ring");
  verb->add_option("-m", timeline.m, "Of its product")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  verb->add_option("-n", timeline.n)->check(CLI::Range(1, 65536))->capture_default_str();
  verb->add_option("-k", timeline.k)->check(CLI::Range(1, 65536))->capture_default_str();
  verb->add_option("--trace", timeline.trace, "File for the Chrome trace; stdout without a file");
  verb->add_option("--svg", timeline.svg, "File for the picture");
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
  if (std::fflush(stdout) != 0) return Fail(Status(StatusCode::kUnknown, "cannot write stdout"));
  return common.exit_code;
}

}  // namespace
}  // namespace gemmd::lab

int main(int argc, char** argv) { return gemmd::lab::Main(argc, argv); }
