#include "kernels/lab/ladder.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "kernels/core/quantile.h"
#include "kernels/core/tables.h"
#include "kernels/core/text.h"

namespace gemmd::lab {
namespace {

Launch LaunchOf(const LabDevice& device, const LadderOptions& options, int stages) {
  Launch launch;
  launch.mechanism = options.mechanism;
  launch.blocks = device.traits().sm_count;
  launch.steps = options.steps;
  launch.panels = options.panels;
  launch.stages = stages;
  launch.stage_bytes = options.stage_bytes;
  launch.work = options.work;
  launch.load_clocks = options.load_clocks;
  return launch;
}

// A ring that does one thing alone, or neither.
Launch Alone(const LabDevice& device, const LadderOptions& options, int stages, bool loads,
             bool consumes) {
  Launch launch = LaunchOf(device, options, stages);
  launch.loads = loads;
  launch.consumes = consumes;
  return launch;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return Quantile(values, 0.5);
}

// What `rounds` runs of one launch gave.
struct Runs {
  std::vector<double> clocks, ready, seconds;

  void Add(const Outcome& outcome, int steps) {
    clocks.push_back(outcome.ClocksPerStep(steps));
    ready.push_back(outcome.ReadyClocksPerStep(steps));
    seconds.push_back(outcome.seconds);
  }
};

// In turns, `rounds` times; once before, unmeasured.
StatusOr<std::vector<Runs>> RunInTurns(LabDevice& device, const std::vector<Launch>& launches,
                                       int rounds) {
  std::vector<Runs> runs(launches.size());
  for (int round = 0; round <= rounds; ++round) {
    for (size_t i = 0; i < launches.size(); ++i) {
      ASSIGN_OR_RETURN(const Outcome outcome, device.Run(launches[i]));
      if (round > 0) runs[i].Add(outcome, launches[i].steps);
    }
  }
  return runs;
}

}  // namespace

StatusOr<Ladder> MeasureLadder(LabDevice& device, const LadderOptions& options) {
  const int64_t room = device.traits().smem_per_block_bytes - kFixedBytes;
  const auto deepest = static_cast<int>(std::min<int64_t>(kMaxStages, room / options.stage_bytes));
  std::vector<Launch> launches = {
      Alone(device, options, 1, /*loads=*/true, /*consumes=*/false),
      Alone(device, options, deepest, /*loads=*/false, /*consumes=*/true),
      Alone(device, options, deepest, /*loads=*/false, /*consumes=*/false)};
  const size_t first = launches.size();
  for (int stages = 1; stages <= std::min(options.max_stages, deepest); ++stages) {
    launches.push_back(LaunchOf(device, options, stages));
  }
  ASSIGN_OR_RETURN(const std::vector<Runs> runs, RunInTurns(device, launches, options.rounds));
  Ladder ladder;
  ladder.options = options;
  ladder.cost = {.load = Median(runs[0].clocks) - Median(runs[2].clocks),
                 .compute = Median(runs[1].clocks)};
  for (size_t i = first; i < launches.size(); ++i) {
    const int stages = launches[i].stages;
    const double clocks = Median(runs[i].clocks), seconds = Median(runs[i].seconds);
    ladder.rungs.push_back(
        {.stages = stages,
         .predicted_clocks = ClocksOfTiles(ladder.cost, stages, options.steps) / options.steps,
         .measured_clocks = clocks,
         .ready_clocks = Median(runs[i].ready),
         .hidden_share = HiddenShare(ladder.cost, clocks),
         .seconds = seconds,
         .bytes_per_second =
             static_cast<double>(launches[i].blocks) * options.steps * kPanelBytes / seconds});
  }
  return ladder;
}

StatusOr<int> WorkFor(LabDevice& device, LadderOptions options, double clocks) {
  constexpr int kSome = 256;
  options.max_stages = 0;  // L and C alone
  options.work = 0;
  ASSIGN_OR_RETURN(const Ladder without, MeasureLadder(device, options));
  options.work = kSome;
  ASSIGN_OR_RETURN(const Ladder with, MeasureLadder(device, options));
  const double of_round = (with.cost.compute - without.cost.compute) / kSome;
  if (of_round <= 0) return Internal("rounds of work take no time: " + Short(of_round));
  const double rounds = std::round((clocks - without.cost.compute) / of_round);
  return static_cast<int>(std::clamp(rounds, 0.0, static_cast<double>(kMaxWork)));
}

StatusOr<Setting> SettingFor(LabDevice& device, LadderOptions options, const TileCost& asked) {
  options.max_stages = 0;
  options.work = 0;
  options.load_clocks = 1;  // the relay is there, and holds nothing back
  ASSIGN_OR_RETURN(const Ladder least, MeasureLadder(device, options));
  const double scale = std::max(
      1.0, std::ceil(std::max(least.cost.load / asked.load, least.cost.compute / asked.compute)));
  if (!(asked.load > 0) || !(asked.compute > 0) || scale > kMostScale) {
    return InvalidArgument("load, compute",
                           "load=" + Short(asked.load) + " compute=" + Short(asked.compute) +
                               " is below a sixteenth of the least that the ring can take: load " +
                               Short(least.cost.load) + ", compute " + Short(least.cost.compute));
  }
  Setting setting{.scale = static_cast<int>(scale)};
  ASSIGN_OR_RETURN(setting.work, WorkFor(device, options, scale * asked.compute));
  options.load_clocks = static_cast<uint32_t>(scale * asked.load);
  ASSIGN_OR_RETURN(const Ladder held, MeasureLadder(device, options));
  // L is what the relay is told and what the ring takes besides.
  const double told = 2 * options.load_clocks - held.cost.load;
  setting.load_clocks = static_cast<uint32_t>(std::max(1.0, std::round(told)));
  return setting;
}

Json LadderJson(const Ladder& ladder) {
  Json rungs = Json::Array();
  for (const Rung& rung : ladder.rungs) {
    rungs.Add(Json::Object()
                  .Set("stages", rung.stages)
                  .Set("predicted_clocks", rung.predicted_clocks)
                  .Set("measured_clocks", rung.measured_clocks)
                  .Set("ready_clocks", rung.ready_clocks)
                  .Set("hidden_share", rung.hidden_share)
                  .Set("seconds", rung.seconds)
                  .Set("bytes_per_second", rung.bytes_per_second));
  }
  const LadderOptions& options = ladder.options;
  return Json::Object()
      .Set("mechanism", Name(options.mechanism))
      .Set("work", options.work)
      .Set("load_floor_clocks", options.load_clocks)
      .Set("scale", options.scale)
      .Set("panels", options.panels)
      .Set("steps", options.steps)
      .Set("stage_bytes", options.stage_bytes)
      .Set("rounds", options.rounds)
      .Set("load_clocks", ladder.cost.load)
      .Set("compute_clocks", ladder.cost.compute)
      .Set("sum_clocks", ladder.cost.load + ladder.cost.compute)
      .Set("larger_clocks", std::max(ladder.cost.load, ladder.cost.compute))
      .Set("rungs", rungs);
}

std::string ScaleText(int scale) {
  return scale == 1 ? "" : ", L and C " + std::to_string(scale) + " times those asked for";
}

std::string LadderText(const Ladder& ladder) {
  const auto& [load, compute] = ladder.cost;
  std::vector<std::vector<std::string>> table = {
      {"stages", "predicted", "measured", "in waits", "load hidden", "launch", "GB/s"}};
  for (const Rung& rung : ladder.rungs) {
    table.push_back({std::to_string(rung.stages), Fixed(rung.predicted_clocks, 0),
                     Fixed(rung.measured_clocks, 0), Fixed(rung.ready_clocks, 0),
                     Fixed(100 * rung.hidden_share, 0) + " %", Time(rung.seconds),
                     Fixed(rung.bytes_per_second * 1e-9, 0)});
  }
  const int scale = ladder.options.scale;
  return std::string(Name(ladder.options.mechanism)) + ScaleText(scale) +
         ", clocks a tile: load alone " + Fixed(load, 0) + ", computing alone " +
         Fixed(compute, 0) + ", their sum " + Fixed(load + compute, 0) + ", the larger " +
         Fixed(std::max(load, compute), 0) + "\n" + TableText(table);
}

int ResidencyStageBytes(const DeviceTraits& traits) {
  const int64_t alone = (traits.smem_per_block_bytes - kFixedBytes) / 4;
  const int64_t beside =
      (traits.smem_per_sm_bytes / 2 - traits.smem_reserved_bytes - kFixedBytes) / 2;
  return static_cast<int>(std::min(alone, beside) / 1024 * 1024);
}

StatusOr<Residency> MeasureResidency(LabDevice& device, const ResidencyOptions& options) {
  const int slot = ResidencyStageBytes(device.traits());
  LadderOptions alone;
  alone.mechanism = options.mechanism;
  alone.work = options.work;
  alone.load_clocks = options.load_clocks;
  alone.rounds = options.rounds;
  alone.max_stages = 0;
  ASSIGN_OR_RETURN(const Ladder ladder, MeasureLadder(device, alone));
  Residency residency{.cost = ladder.cost, .points = {}};
  for (const int steps : options.steps) {
    std::vector<Launch> launches;
    for (const auto& [stages, stage_bytes] :
         {std::pair(2, slot), std::pair(2, 2 * slot), std::pair(4, slot)}) {
      Launch launch;
      launch.mechanism = options.mechanism;
      launch.blocks = options.blocks_per_sm * device.traits().sm_count;
      launch.steps = steps;
      launch.stages = stages;
      launch.stage_bytes = stage_bytes;
      launch.work = options.work;
      launch.load_clocks = options.load_clocks;
      launches.push_back(launch);
    }
    ASSIGN_OR_RETURN(const std::vector<Runs> runs, RunInTurns(device, launches, options.rounds));
    for (size_t i = 0; i < launches.size(); ++i) {
      const Launch& launch = launches[i];
      ResidencyPoint point{
          .steps = steps,
          .stages = launch.stages,
          .stage_bytes = launch.stage_bytes,
          .seconds = Median(runs[i].seconds),
          .clocks = Median(runs[i].clocks),
          .predicted_clocks = ClocksOfTiles(ladder.cost, launch.stages, steps) / steps,
          .ready_clocks = Median(runs[i].ready)};
      ASSIGN_OR_RETURN(point.resident_blocks, device.DriverResidentBlocks(launch));
      point.tiles_per_second = static_cast<double>(launch.blocks) * steps / point.seconds;
      residency.points.push_back(point);
    }
  }
  return residency;
}

Json ResidencyJson(const ResidencyPoint& point) {
  return Json::Object()
      .Set("k_tiles", point.steps)
      .Set("stages", point.stages)
      .Set("stage_bytes", point.stage_bytes)
      .Set("resident_blocks", point.resident_blocks)
      .Set("seconds", point.seconds)
      .Set("tiles_per_second", point.tiles_per_second)
      .Set("clocks_per_tile", point.clocks)
      .Set("predicted_clocks_per_tile", point.predicted_clocks)
      .Set("ready_clocks", point.ready_clocks);
}

std::string ResidencyText(const std::vector<ResidencyPoint>& points) {
  std::vector<std::vector<std::string>> table = {{"K tiles", "stages", "slot", "blocks an SM",
                                                  "launch", "tiles/us", "clocks a tile",
                                                  "predicted", "in waits"}};
  for (const ResidencyPoint& point : points) {
    table.push_back({std::to_string(point.steps), std::to_string(point.stages),
                     Bytes(point.stage_bytes), std::to_string(point.resident_blocks),
                     Time(point.seconds), Fixed(point.tiles_per_second * 1e-6, 1),
                     Fixed(point.clocks, 0), Fixed(point.predicted_clocks, 0),
                     Fixed(point.ready_clocks, 0)});
  }
  return TableText(table);
}

}  // namespace gemmd::lab
