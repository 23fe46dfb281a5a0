// What a ring of stages can be expected to cost: the arithmetic of the laboratory, for one block
// that loads, waits for and computes one tile after another. All times in clocks of an SM.
//
// A ring of S slots, each of which is refilled as soon as its tile is computed, has S loads under
// way. S tiles then take max(S C, L + C): either the computing never stops, or one load and one
// computation of the same slot follow each other. From that:
//
//   S = 1           L + C a tile: the single buffer
//   any S           max(C, (L + C) / S) a tile
//   uncovered       max(0, L - (S - 1) C): what a turn of the ring waits, once, for its first tile
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/core/device_traits.h"

namespace gemmd::lab {

struct TileCost {
  double load = 0;     // L: from a slot's being free to its next tile's having landed
  double compute = 0;  // C: all that a consumer does for a tile
};

// Precondition of all: stages >= 1.
double UncoveredClocks(const TileCost& cost, int stages);
double ClocksPerTile(const TileCost& cost, int stages);  // in the long run
// Of `tiles` from the first issue on, with the fill and the drain.
double ClocksOfTiles(const TileCost& cost, int stages, int64_t tiles);
// The least stage count whose turns wait for nothing: 1 where loads take no time, INT_MAX where
// there is none, or none so low.
int CoveringStages(const TileCost& cost);

// Share of the load's time that a measured tile hides behind computing: 0 for the single buffer, 1
// where a tile takes C. Beyond these where the measurement is. 0 where there is no load to hide.
double HiddenShare(const TileCost& cost, double clocks_per_tile);

// Blocks of a launch that an SM holds at once, by their dynamic shared memory, threads and
// registers of a thread; 0 where not even one fits.
int ResidentBlocks(const DeviceTraits& traits, int64_t smem_bytes, int threads, int registers);

// One line of the worked example.
struct StageOutlook {
  int stages = 0;
  double uncovered_clocks = 0;
  double clocks_per_tile = 0;
  int64_t smem_bytes = 0;
  int resident_blocks = 0;
  // Of an SM, a tile: its resident blocks work side by side and do not hinder one another, which is
  // the best case. Infinite where no block fits.
  double sm_clocks_per_tile = 0;
};

// Of 1 to `max_stages` stages; a launch takes fixed_bytes + stages * stage_bytes, of which
// `resident` says how many blocks an SM holds.
std::vector<StageOutlook> OutlookOf(const TileCost& cost, int max_stages, int64_t stage_bytes,
                                    int64_t fixed_bytes,
                                    const std::function<int(int64_t smem_bytes)>& resident);

}  // namespace gemmd::lab
