#include "kernels/lab/experiments.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>
#include <thread>
#include <utility>

#include "kernels/core/files.h"
#include "kernels/core/json.h"
#include "kernels/core/tables.h"
#include "kernels/core/text.h"
#include "kernels/cuda/device_probe.h"
#include "kernels/lab/production.h"
#include "kernels/lab/ring_model.h"
#include "kernels/lab/timeline.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd::lab {
namespace {

// Of which experiment, where and when; then the results as "rows".
void Print(const Common& common, const std::string& gpu, const char* key, const Json& results) {
  const Json document = Json::Object()
                            .Set("bench", std::string("lab-") + key)
                            .Set("gpu", gpu)
                            .Set("commit", common.commit)
                            .Set("date", UtcDate())
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
  return common.mechanism ? std::vector{*common.mechanism} : device.mechanisms();
}

std::string OutlookText(const std::vector<StageOutlook>& outlook, const DeviceTraits& traits) {
  std::vector<std::vector<std::string>> table = {{"stages", "uncovered", "clocks a tile",
                                                  "shared memory", "blocks an SM",
                                                  "clocks a tile of an SM"}};
  for (const StageOutlook& at : outlook) {
    table.push_back({std::to_string(at.stages), Fixed(at.uncovered_clocks, 0),
                     Fixed(at.clocks_per_tile, 0), Bytes(at.smem_bytes),
                     at.resident_blocks > 0 ? std::to_string(at.resident_blocks) : "too large",
                     at.resident_blocks > 0 ? Fixed(at.sm_clocks_per_tile, 0) : ""});
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

// Sets the kernel's L and C to those asked for, or to the least multiple that it can have, and
// measures.
StatusOr<Ladder> MeasureExample(LabDevice& device, const ModelOptions& options,
                                const Common& common, Mechanism mechanism) {
  LadderOptions ladder;
  ladder.mechanism = mechanism;
  ladder.steps = options.steps;
  ladder.stage_bytes = options.stage_bytes;
  ladder.max_stages = options.max_stages;
  ladder.rounds = common.rounds;
  ASSIGN_OR_RETURN(
      const Setting setting,
      SettingFor(device, ladder, {.load = options.load_clocks, .compute = options.compute_clocks}));
  ladder.work = setting.work;
  ladder.load_clocks = setting.load_clocks;
  ladder.scale = setting.scale;
  return MeasureLadder(device, ladder);
}

std::string CoverText(const TileCost& cost) {
  const int stages = CoveringStages(cost);
  if (stages == std::numeric_limits<int>::max()) return "no ring covers L";
  return Count(stages, "stage") + (stages == 1 ? " covers L" : " cover L");
}

StatusOr<std::vector<Picture>> TraceKernel(const DeviceTraits& traits,
                                           const TimelineOptions& options) {
  const int row = RowByName(options.kernel);
  const std::vector<int> rows = TracedRows(traits);
  if (std::find(rows.begin(), rows.end(), row) == rows.end()) {
    return InvalidArgument("kernel",
                           "kernel=" + options.kernel + " cannot be traced on " + traits.name);
  }
  std::vector<Picture> pictures;
  for (const int stages : options.stages) {
    const TracedProduct product = {row, stages, options.m, options.n, options.k};
    ASSIGN_OR_RETURN(std::vector<Picture> traced, TraceProduct(traits, product, options.blocks));
    std::move(traced.begin(), traced.end(), std::back_inserter(pictures));
  }
  return pictures;
}

// The chosen blocks of one launch.
StatusOr<std::vector<Picture>> TraceRing(LabDevice& device, Mechanism mechanism, int stages,
                                         const Setting& setting, const TimelineOptions& options) {
  const int blocks = *std::max_element(options.blocks.begin(), options.blocks.end()) + 1;
  Launch launch;
  launch.mechanism = mechanism;
  launch.blocks = std::max(device.traits().sm_count, blocks);
  launch.steps = options.steps;
  launch.panels = kCachedPanels;
  launch.stages = stages;
  launch.work = setting.work;
  launch.load_clocks = setting.load_clocks;
  launch.trace_blocks = blocks;
  ASSIGN_OR_RETURN(Outcome outcome, device.Run(launch));  // the first loads the kernel
  ASSIGN_OR_RETURN(outcome, device.Run(launch));
  std::vector<Picture> pictures;
  for (const int block : options.blocks) {
    pictures.push_back(
        PictureOf(TimelineOf(outcome.trace.data() + block * TraceWords(options.steps),
                             options.steps, stages, PictureName(Name(mechanism), stages, block))));
  }
  return pictures;
}

StatusOr<std::vector<Picture>> TraceRings(LabDevice& device, const Common& common,
                                          const TimelineOptions& options) {
  std::vector<Picture> pictures;
  for (const Mechanism mechanism : MechanismsOf(common, device)) {
    LadderOptions alone;
    alone.mechanism = mechanism;
    alone.rounds = common.rounds;
    ASSIGN_OR_RETURN(const Setting setting,
                     SettingFor(device, alone,
                                {.load = options.load_clocks, .compute = options.compute_clocks}));
    for (const int stages : options.stages) {
      ASSIGN_OR_RETURN(std::vector<Picture> traced,
                       TraceRing(device, mechanism, stages, setting, options));
      std::move(traced.begin(), traced.end(), std::back_inserter(pictures));
    }
  }
  return pictures;
}

}  // namespace

Status RunModel(const Common& common, const ModelOptions& options) {
  if (options.stage_bytes % 1024 != 0) {
    return InvalidArgument("stage-bytes", "stage-bytes=" + std::to_string(options.stage_bytes) +
                                              " is not a multiple of 1024");
  }
  const TileCost cost = {.load = options.load_clocks, .compute = options.compute_clocks};
  const StatusOr<DeviceTraits> probed = ProbeCudaDevice(common.device);
  if (probed.status().code() == StatusCode::kInvalidArgument) return probed.status();
  const DeviceTraits traits = probed.ok() ? *probed : H200Traits();
  const std::vector<StageOutlook> outlook = OutlookOf(
      cost, options.max_stages, options.stage_bytes, kFixedBytes, [&](int64_t smem_bytes) {
        return ResidentBlocks(traits, smem_bytes, kThreads, kMostRegisters);
      });
  if (!common.json) {
    std::printf("L = %s clocks to load a tile, C = %s to compute it; %s.\n%s",
                Short(cost.load).c_str(), Short(cost.compute).c_str(), CoverText(cost).c_str(),
                OutlookText(outlook, traits).c_str());
  }
  StatusOr<LabDevice> device =
      options.measure ? OpenDevice(common) : StatusOr<LabDevice>(Unavailable("not asked for"));
  if (options.measure && !device.ok()) {
    std::fprintf(stderr, "gemmd_lab: nothing measured: %s\n", device.status().ToString().c_str());
  }
  Json measured = Json::Array();
  if (device.ok()) {
    for (const Mechanism mechanism : MechanismsOf(common, *device)) {
      const StatusOr<Ladder> ladder = MeasureExample(*device, options, common, mechanism);
      if (!ladder.ok() && ladder.status().code() == StatusCode::kInvalidArgument) {
        std::fprintf(stderr, "gemmd_lab: %s not measured: %s\n", Name(mechanism),
                     ladder.status().ToString().c_str());
        continue;
      }
      RETURN_IF_ERROR(ladder.status());
      if (!common.json) std::printf("\n%s", LadderText(*ladder).c_str());
      measured.Add(LadderJson(*ladder));
    }
  }
  if (common.json) {
    Print(common, probed.ok() ? traits.name : "none", "model",
          Json::Object()
              .Set("residency_of", traits.name)
              .Set("outlook", OutlookJson(outlook))
              .Set("measured", measured));
  }
  return OkStatus();
}

Status RunLadder(const Common& common, LadderOptions options, double compute_clocks) {
  const int work = options.work;
  ASSIGN_OR_RETURN(LabDevice device, OpenDevice(common));
  Json rows = Json::Array();
  for (const Mechanism mechanism : MechanismsOf(common, device)) {
    options.mechanism = mechanism;
    options.rounds = common.rounds;
    if (options.panels == 0) options.panels = device.shape().panels;
    double clocks = compute_clocks;
    if (clocks == 0 && work == 0) {  // as long as a load takes: what overlap does most for
      LadderOptions alone = options;
      alone.max_stages = 0;
      ASSIGN_OR_RETURN(const Ladder cost, MeasureLadder(device, alone));
      clocks = cost.cost.load;
    }
    options.work = work;
    if (clocks > 0) {
      ASSIGN_OR_RETURN(options.work, WorkFor(device, options, clocks));
    }
    ASSIGN_OR_RETURN(const Ladder ladder, MeasureLadder(device, options));
    if (!common.json) std::printf("%s\n", LadderText(ladder).c_str());
    rows.Add(LadderJson(ladder));
  }
  if (common.json) Print(common, device.traits().name, "ladder", rows);
  return OkStatus();
}

Status RunResidency(const Common& common, ResidencyOptions options, const TileCost& asked) {
  ASSIGN_OR_RETURN(LabDevice device, OpenDevice(common));
  Json rows = Json::Array();
  for (const Mechanism mechanism : MechanismsOf(common, device)) {
    options.mechanism = mechanism;
    options.rounds = common.rounds;
    LadderOptions alone;
    alone.mechanism = mechanism;
    alone.rounds = common.rounds;
    ASSIGN_OR_RETURN(const Setting setting, SettingFor(device, alone, asked));
    options.work = setting.work;
    options.load_clocks = setting.load_clocks;
    ASSIGN_OR_RETURN(const Residency residency, MeasureResidency(device, options));
    if (!common.json) {
      std::printf("%s%s: L = %s, C = %s clocks\n%s\n", Name(mechanism),
                  ScaleText(setting.scale).c_str(), Fixed(residency.cost.load, 0).c_str(),
                  Fixed(residency.cost.compute, 0).c_str(),
                  ResidencyText(residency.points).c_str());
    }
    for (const ResidencyPoint& point : residency.points) {
      rows.Add(ResidencyJson(point)
                   .Set("mechanism", Name(mechanism))
                   .Set("asked_load_clocks", asked.load)
                   .Set("asked_compute_clocks", asked.compute)
                   .Set("load_clocks", residency.cost.load)
                   .Set("compute_clocks", residency.cost.compute)
                   .Set("scale", setting.scale));
    }
  }
  if (common.json) Print(common, device.traits().name, "residency", rows);
  return OkStatus();
}

Status RunHazard(const Common& common, HazardOptions options) {
  ASSIGN_OR_RETURN(LabDevice device, OpenDevice(common));
  options.mechanisms = MechanismsOf(common, device);
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  ASSIGN_OR_RETURN(const std::vector<HazardRow> rows, RunHazards(device, options));
  if (common.json) {
    Json lines = Json::Array();
    for (const HazardRow& row : rows) lines.Add(HazardJson(row));
    Print(common, device.traits().name, "hazard", lines);
  } else {
    std::printf("seed %u, %s of an array of %s\n%s", options.seed,
                Count(options.iterations, "iteration").c_str(),
                Bytes(device.shape().words() * 4).c_str(), HazardReport(rows).c_str());
  }
  const auto wrong = [](const HazardRow& row) { return row.correct_failures > 0; };
  if (std::any_of(rows.begin(), rows.end(), wrong)) {
    return Status(StatusCode::kDataLoss, "the ring with both of its edges gave wrong sums");
  }
  return OkStatus();
}

Status RunTimeline(const Common& common, const TimelineOptions& options) {
  if (!options.svg.empty() && !options.trace.empty() && SameFile(options.svg, options.trace)) {
    return InvalidArgument("svg", "svg=" + options.svg + " is the file of trace=" + options.trace);
  }
  for (const std::string& path : {options.trace, options.svg}) {
    if (!path.empty()) RETURN_IF_ERROR(CheckWritable(path));
  }
  ASSIGN_OR_RETURN(LabDevice device, OpenDevice(common));
  ASSIGN_OR_RETURN(const std::vector<Picture> pictures,
                   options.kernel.empty() ? TraceRings(device, common, options)
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

}  // namespace gemmd::lab
