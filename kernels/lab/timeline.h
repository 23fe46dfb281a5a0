// The moments of a ring's steps as pictures: when copies were issued and landed, and what each warp
// did meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/lab/lab_ring.h"
#include "kernels/lab/wait_trace.h"

namespace gemmd::lab {

// Of one warp in one step, in clocks from the timeline's start.
struct WarpStep {
  uint32_t wait = 0;   // begins to wait for the panel
  uint32_t ready = 0;  // may read
  uint32_t read = 0;   // has read and worked, and gives the slot back
};

struct StepMoments {
  int slot = 0;
  uint32_t acquire = 0;  // the producer begins to wait for the slot
  uint32_t free = 0;     // it begins to issue the copies
  uint32_t issued = 0;   // it has
  uint32_t landed = 0;
  std::array<WarpStep, kWarps> warps{};
};

struct Timeline {
  std::string name;  // "S = 2"
  int stages = 0;
  std::vector<StepMoments> steps;
};

// Of one block. `words`: its TraceWords(steps), by any clock that wraps at 2^32; its first moment
// becomes 0.
Timeline TimelineOf(const uint32_t* words, int steps, int stages, std::string name);

// A stretch of a lane. `step` is the K step that it is about.
struct Span {
  enum class Kind : uint8_t { kCopy, kWaitReady, kRead, kWaitReuse, kIssue };
  Kind kind = Kind::kCopy;
  uint32_t from = 0, to = 0;  // clocks
  int step = 0;
};

struct Lane {
  std::string name;
  std::vector<Span> spans;
};

// "tma, S = 2, block 63"
std::string PictureName(std::string_view ring, int stages, int block);

// Slots first, then the producer, then warps.
struct Picture {
  std::string name;
  std::vector<Lane> lanes;
};

Picture PictureOf(const Timeline& timeline);

// Of a block of a production kernel: kTracedWarps of `waits`.
struct TracedRing {
  std::string name;
  int stages = 0;
  int k_tiles = 0;        // steps of a tile
  bool producer = false;  // the first warp produces, and the consumers begin with the fifth; else
                          // all warps do both
  bool in_turn = false;   // consumers of 4 warps each take tiles in turn
};
// Copies have no end of their own there: they are drawn until the first warp has their panel.
Picture PictureOfWaits(const WarpWaits* waits, const TracedRing& ring);

// A document in Chrome's trace event format, for Perfetto or chrome://tracing: a process for each
// picture, a thread for each lane. One nanosecond shown is one clock.
std::string ChromeTrace(const std::vector<Picture>& pictures);

// A standalone SVG 1.1 document of the first `steps` steps of each, one under the other on one
// scale, waits in colours of their own.
std::string TimelineSvg(const std::vector<Picture>& pictures, int steps);

}  // namespace gemmd::lab
