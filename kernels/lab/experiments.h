// The laboratory's experiments: each runs, and prints what it found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/lab/hazard.h"
#include "kernels/lab/lab_run.h"
#include "kernels/lab/ladder.h"

namespace gemmd::lab {

inline constexpr int kCachedPanels = 4;  // of a strip: all strips' stay in the L2 cache

// What every experiment takes.
struct Common {
  int device = 0;
  bool json = false;
  std::string commit = "unknown";
  std::optional<Mechanism> mechanism;  // none: all that the device has
  int rounds = 7;
};

struct ModelOptions {
  double load_clocks = 500, compute_clocks = 220;
  int max_stages = kMaxStages;
  int stage_bytes = 16 << 10;  // rings of 8 fit, and cost residency
  int steps = 512;
  bool measure = true;
};

struct TimelineOptions {
  std::vector<int> stages = {1, 2, 4};
  int steps = 16;       // of the laboratory's ring
  int drawn_steps = 8;  // of all, in the picture
  std::vector<int> blocks = {0};
  double load_clocks = 500, compute_clocks = 220;
  std::string kernel;                    // a production one; empty: the laboratory's ring
  int64_t m = 1024, n = 1024, k = 1024;  // of its product
  std::string trace, svg;                // paths; empty: none
};

// Of the worked example: by arithmetic, and measured where there is a device.
Status RunModel(const Common& common, const ModelOptions& options);
// One tile at every stage count. C is set to `compute_clocks`; at 0, to what options.work makes it,
// or to L where that is 0 too. options.panels = 0: all of a strip.
Status RunLadder(const Common& common, LadderOptions options, double compute_clocks);
Status RunResidency(const Common& common, ResidencyOptions options, const TileCost& asked);
// DATA_LOSS, once all is printed, where the ring with both of its edges was wrong.
Status RunHazard(const Common& common, HazardOptions options);
Status RunTimeline(const Common& common, const TimelineOptions& options);

}  // namespace gemmd::lab
