// What one product cost: where its time went, and what its kernel waited for.
#pragma once

#include <chrono>
#include <cstdint>

namespace gemmd {

using Nanoseconds = std::chrono::nanoseconds;

// Phases of one request, in order. Device phases come from device events, never from host clocks.
struct PhaseTimes {
  Nanoseconds decode{0};   // wire message -> validated problem
  Nanoseconds queue{0};    // admitted -> taken from the queue with a lane
  Nanoseconds plan{0};     // choosing the kernel and its stage count
  Nanoseconds stage{0};    // host copy into the staging block
  Nanoseconds h2d{0};      // host -> device
  Nanoseconds kernel{0};   // device time of the product
  Nanoseconds d2h{0};      // device -> host
  Nanoseconds unstage{0};  // host copy out of the staging block
  Nanoseconds total{0};    // request seen -> result ready to be sent
};

// Cycles of one launch, summed over its thread blocks, as read by one thread of the producer and
// one of the consumers of each; of both consumers where they take tiles in turn, whose main loops
// and epilogues then overlap.
struct StallSample {
  bool measured = false;  // false: no probe in this kernel or backend, or dropped
  bool dropped = false;   // what was read cannot be this launch's; all below is 0
  // Consumer waited for a stage to arrive (the ready edge). Consumers that take tiles in turn do
  // not count the wait for their turn.
  uint64_t wait_full = 0;
  uint64_t wait_empty = 0;  // producer waited for a stage to be free (the reuse edge)
  uint64_t mainloop = 0;    // whole main loop, waits included
  uint64_t epilogue = 0;    // scaling, activation, conversion, stores
  uint64_t k_tiles = 0;     // K tiles consumed
};

}  // namespace gemmd
