#include "kernels/lab/ring_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gemmd::lab {

double UncoveredClocks(const TileCost& cost, int stages) {
  return std::max(0.0, cost.load - (stages - 1) * cost.compute);
}

double ClocksPerTile(const TileCost& cost, int stages) {
  return std::max(cost.compute, (cost.load + cost.compute) / stages);
}

double ClocksOfTiles(const TileCost& cost, int stages, int64_t tiles) {
  std::vector<double> free_at(static_cast<size_t>(stages), 0.0);  // of a slot: refilled then
  double computed_at = 0;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    double& slot = free_at[static_cast<size_t>(tile % stages)];
    computed_at = std::max(slot + cost.load, computed_at) + cost.compute;
    slot = computed_at;
  }
  return computed_at;
}

int CoveringStages(const TileCost& cost) {
  if (cost.load <= 0) return 1;
  if (cost.compute <= 0) return std::numeric_limits<int>::max();
  // Of decimal fractions a quotient is a little off: 2.1 / 0.7 is above 3.
  const double stages = std::ceil(cost.load / cost.compute * (1 - 1e-12)) + 1;
  return stages < std::numeric_limits<int>::max() ? static_cast<int>(stages)
                                                  : std::numeric_limits<int>::max();
}

double HiddenShare(const TileCost& cost, double clocks_per_tile) {
  return cost.load > 0 ? (cost.load + cost.compute - clocks_per_tile) / cost.load : 0;
}

int ResidentBlocks(const DeviceTraits& traits, int64_t smem_bytes, int threads, int registers) {
  if (smem_bytes > traits.smem_per_block_bytes) return 0;
  const int64_t by_smem = traits.smem_per_sm_bytes / (smem_bytes + traits.smem_reserved_bytes);
  const int64_t by_threads = traits.threads_per_sm / threads;
  const int64_t by_registers = traits.registers_per_sm / (int64_t{threads} * registers);
  return static_cast<int>(
      std::min({by_smem, by_threads, by_registers, int64_t{traits.blocks_per_sm}}));
}

std::vector<StageOutlook> OutlookOf(const TileCost& cost, int max_stages, int64_t stage_bytes,
                                    int64_t fixed_bytes,
                                    const std::function<int(int64_t smem_bytes)>& resident) {
  std::vector<StageOutlook> outlook;
  for (int stages = 1; stages <= max_stages; ++stages) {
    StageOutlook at{.stages = stages,
                    .uncovered_clocks = UncoveredClocks(cost, stages),
                    .clocks_per_tile = ClocksPerTile(cost, stages),
                    .smem_bytes = fixed_bytes + stages * stage_bytes,
                    .sm_clocks_per_tile = std::numeric_limits<double>::infinity()};
    at.resident_blocks = resident(at.smem_bytes);
    if (at.resident_blocks > 0) at.sm_clocks_per_tile = at.clocks_per_tile / at.resident_blocks;
    outlook.push_back(at);
  }
  return outlook;
}

}  // namespace gemmd::lab
