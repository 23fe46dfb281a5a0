#include "kernels/lab/hazard.h"

#include <algorithm>
#include <cstddef>

namespace gemmd::lab {
namespace {

constexpr size_t kExamples = 5;  // of a row

Launch LaunchOf(const LabDevice& device, const HazardRow& row, int stages) {
  Launch launch;
  launch.mechanism = row.mechanism;
  launch.blocks = device.shape().strips;
  launch.steps = launch.panels = device.shape().panels;
  launch.stages = stages;
  launch.delay_clocks = row.delay_clocks;
  launch.wants_sums = true;
  return launch;
}

std::vector<HazardRow> RowsOf(const LabDevice& device, const HazardOptions& options) {
  std::vector<HazardRow> rows;
  for (const Hazard& hazard : Hazards()) {
    const auto& faults = options.faults;
    if (!faults.empty() && std::find(faults.begin(), faults.end(), hazard.fault) == faults.end()) {
      continue;
    }
    for (const Mechanism mechanism : options.mechanisms) {
      for (const uint32_t delay : options.delays) {
        HazardRow row;
        row.hazard = &hazard;
        row.mechanism = mechanism;
        row.delay_clocks = delay;
        row.seed = options.seed;
        row.stages = options.stages;
        row.array = device.shape();
        rows.push_back(row);
      }
    }
  }
  return rows;
}

// Adds the first wrong sums of an iteration to `examples`; returns how many were wrong.
int64_t Judge(const LabDevice& device, const std::vector<uint32_t>& expected,
              const std::vector<uint32_t>& found, int iteration, std::vector<Example>& examples) {
  const std::vector<WrongSum> wrong = WrongSums(device.shape(), expected, found, /*work=*/0,
                                                kExamples - std::min(kExamples, examples.size()));
  for (const WrongSum& one : wrong) {
    if (examples.size() == kExamples) break;
    examples.push_back({iteration, one});
  }
  return static_cast<int64_t>(wrong.size());
}

Status RunOne(LabDevice& device, const HazardOptions& options, int iteration,
              const std::vector<uint32_t>& expected, HazardRow& row) {
  Launch launch = LaunchOf(device, row, options.stages);
  ASSIGN_OR_RETURN(const Outcome correct, device.Run(launch));
  if (Judge(device, expected, correct.sums, iteration, row.first_correct_wrong) > 0) {
    ++row.correct_failures;
  }
  launch.fault = row.hazard->fault;
  ASSIGN_OR_RETURN(const Outcome broken, device.Run(launch));
  const int64_t wrong = Judge(device, expected, broken.sums, iteration, row.first_wrong);
  row.broken_failures += wrong > 0 ? 1 : 0;
  row.broken_wrong_sums += wrong;
  row.sums += static_cast<int64_t>(expected.size());
  ++row.iterations;
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<HazardRow>> RunHazards(LabDevice& device, const HazardOptions& options) {
  std::vector<HazardRow> rows = RowsOf(device, options);
  for (int iteration = 0; iteration < options.iterations; ++iteration) {
    const uint32_t seed = options.seed + static_cast<uint32_t>(iteration);
    RETURN_IF_ERROR(device.Fill(seed));  // meanwhile the host computes
    const std::vector<uint32_t> expected = PanelSums(device.shape(), seed, 0, options.threads);
    for (HazardRow& row : rows) RETURN_IF_ERROR(RunOne(device, options, iteration, expected, row));
  }
  return rows;
}

}  // namespace gemmd::lab
