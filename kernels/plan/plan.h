// What will run for a problem, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/plan/kernel_table.h"

namespace gemmd {

// What kept the stage count from being larger, or chose it.
enum class StageLimit : uint8_t {
  kNone,          // no ring: CPU, empty product, epilogue only
  kSharedMemory,  // one more stage does not fit a block
  kKTiles,        // there are no more K tiles to hold
  kResidency,     // one more stage would cost a resident block
  kModel,         // more stages fit but would not be faster
  kMeasured,      // a tuning entry
  kForced,        // the request named it
};
enum class PlanSource : uint8_t { kModel, kMeasured, kForced };

std::string_view Name(StageLimit limit);   // "none", "shared_memory", "k_tiles", ...
std::string_view Name(PlanSource source);  // "model", "measured", "forced"

struct Plan {
  int row = -1;  // into kKernelTable; -1: nothing is launched (an empty product)
  int stages = 0;
  int split_k =
      1;  // parts that the K steps of each tile are computed in; a second kernel adds them up
  bool pair = false;         // blocks in pairs that share a panel of their tiles
  bool early_start = false;  // may start while the launch before it on the stream still runs
  StageLimit limit = StageLimit::kNone;
  PlanSource source = PlanSource::kModel;
  int resident_blocks = 0;       // per SM, at this stage count
  int64_t smem_bytes = 0;        // dynamic, per block
  int registers_per_thread = 0;  // 0 where there is no kernel of ours
  double waves = 0;              // rounds of resident blocks that all tiles, or parts of them, take
  double predicted_seconds = 0;  // device time by the model; 0 where there is no model
  double measured_seconds = 0;   // device time by a measurement of this very plan; 0 without one

  std::string_view kernel() const { return row < 0 ? "none" : kKernelTable[row].name; }
};

// What a request may ask of its plan. Refused with a reason when it cannot run.
struct PlanConstraints {
  std::optional<int> row;      // a valid index into kKernelTable
  std::optional<int> stages;   // >= 1
  std::optional<int> split_k;  // >= 1

  bool any() const { return row || stages || split_k; }
  // Whether `plan` is one that was asked for.
  bool Met(const Plan& plan) const {
    return row.value_or(plan.row) == plan.row && stages.value_or(plan.stages) == plan.stages &&
           split_k.value_or(plan.split_k) == plan.split_k;
  }

  friend bool operator==(const PlanConstraints&, const PlanConstraints&) = default;
};

// Whether both launch the same: row, stages, split_k and pair.
inline bool SameLaunch(const Plan& x, const Plan& y) {
  return x.row == y.row && x.stages == y.stages && x.split_k == y.split_k && x.pair == y.pair;
}

// "cp_async_128x128x64 stages 4 (residency)", and its parts, pairs where it has any.
std::string ToString(const Plan& plan);

}  // namespace gemmd
