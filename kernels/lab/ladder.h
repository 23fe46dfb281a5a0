// How long a tile takes at each stage count, beside what the arithmetic says: the same tile, bytes
// and work from the single buffer up, with load and computing measured alone.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/core/status.h"
#include "kernels/lab/lab_run.h"
#include "kernels/lab/ring_model.h"

namespace gemmd::lab {

struct LadderOptions {
  Mechanism mechanism = Mechanism::kCpAsync;
  int work = 0;              // rounds behind each sum: what C is set by
  uint32_t load_clocks = 0;  // at least: what L is set by
  int panels = 1;            // that a block walks: few stay in the caches
  int steps = 512;           // of a block
  int stage_bytes = kPanelBytes;
  int max_stages = kMaxStages;  // as many as fit are measured
  int scale = 1;                // of L and C to those that were asked for
  int rounds = 7;               // every rung once in each; medians are taken
};

struct Rung {
  int stages = 0;
  double predicted_clocks = 0;  // a tile, as are all below
  double measured_clocks = 0;
  double ready_clocks = 0;      // of these, waiting for panels
  double hidden_share = 0;      // of the load's time
  double seconds = 0;           // of the launch
  double bytes_per_second = 0;  // of all panels: what the memory gave
};

struct Ladder {
  LadderOptions options;
  // From three launches: a single buffer that is loaded and not read; the deepest ring, where
  // nobody waits, that is read and not loaded; and the same of neither, which has a consumer's loop
  // and its side of the barriers.
  //   L = loads alone - neither;  C = computing alone
  TileCost cost;
  std::vector<Rung> rungs;
};

// A block an SM.
StatusOr<Ladder> MeasureLadder(LabDevice& device, const LadderOptions& options);

// Rounds of work at which C is about `clocks`: from two measurements and a line through them. 0
// where a tile without work takes as long.
StatusOr<int> WorkFor(LabDevice& device, LadderOptions options, double clocks);

// Settings of the ring at which L and C are about `scale` times those asked for.
struct Setting {
  int work = 0;
  uint32_t load_clocks = 0;
  int scale = 1;  // the least, 1 to kMostScale, at which the ring's own part of both is no more
};
inline constexpr int kMostScale = 16;

// By measurement, with options' slots and steps. The relations between L, C, S and K are those of
// any scale. INVALID_ARGUMENT where `asked` is too little for kMostScale.
StatusOr<Setting> SettingFor(LabDevice& device, LadderOptions options, const TileCost& asked);

Json LadderJson(const Ladder& ladder);  // all of it
std::string LadderText(const Ladder& ladder);
std::string ScaleText(int scale);  // ", L and C 2 times those asked for"; of 1 nothing

// Two stages against four with and without a loss of residency. A ring of four takes a block's
// whole shared memory; one of two in slots of the same size lets a second block onto the SM, one of
// two in slots twice the size does not.
struct ResidencyPoint {
  int steps = 0;  // K, in tiles, of a block
  int stages = 0;
  int stage_bytes = 0;
  int resident_blocks = 0;  // as the driver says
  double seconds = 0;       // of the launch
  double tiles_per_second = 0;
  // Of a block, a tile; the first tiles wait for a whole load, which few tiles do not make up for.
  double clocks = 0;
  double predicted_clocks = 0;
  double ready_clocks = 0;  // of `clocks`, waiting for panels
};

struct ResidencyOptions {
  Mechanism mechanism = Mechanism::kCpAsync;
  int work = 0;
  uint32_t load_clocks = 0;
  std::vector<int> steps = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  int blocks_per_sm = 4;  // of the grid
  int rounds = 7;
};

// The slot of a ring of four that a block of `traits` can have, and two blocks of rings of two.
int ResidencyStageBytes(const DeviceTraits& traits);

struct Residency {
  TileCost cost;  // as measured, which the predictions are of
  std::vector<ResidencyPoint> points;
};
StatusOr<Residency> MeasureResidency(LabDevice& device, const ResidencyOptions& options);
Json ResidencyJson(const ResidencyPoint& point);
std::string ResidencyText(const std::vector<ResidencyPoint>& points);

}  // namespace gemmd::lab
