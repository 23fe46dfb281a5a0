// The moments of a ring's steps as pictures: when copies were issued and landed, and what each warp
// did meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/lab/lab_ring.h"

namespace gemmd::lab {

// Of one warp in one step, in clocks from the timeline's start.
struct WarpStep {
  uint32_t wait = 0;   // begins to wait for the panel
  uint32_t ready = 0;  // may read
  uint32_t read = 0;   // has read and worked
  uint32_t reuse = 0;  // all have
};

struct StepMoments {
  int slot = 0;
  uint32_t issued = 0, landed = 0;
  std::array<WarpStep, kWarps> warps{};
};

struct Timeline {
  std::string name;  // "S = 2"
  int block = 0;
  int stages = 0;
  std::vector<StepMoments> steps;
};

// Of one block. `words`: its TraceWords(steps), by any clock that wraps at 2^32; the first issue
// becomes 0.
Timeline TimelineOf(const uint32_t* words, int steps, int stages, std::string name, int block);

// A document in Chrome's trace event format, for Perfetto or chrome://tracing: a process for each
// timeline, a thread for each slot and each warp. One nanosecond shown is one clock.
std::string ChromeTrace(const std::vector<Timeline>& timelines);

// A standalone SVG 1.1 document of the first `steps` steps of each, one under the other on one
// scale: slots above, warps below, waits in colours of their own.
std::string TimelineSvg(const std::vector<Timeline>& timelines, int steps);

}  // namespace gemmd::lab
