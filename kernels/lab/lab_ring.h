// The laboratory's ring: a ring of stages of which one edge at a time can be left out. Never part
// of a server: the broken variants exist in the laboratory's programs alone.
//
// Each block walks panels of an array of random words. A step's panel is copied into a slot of the
// ring, every consumer warp sums its share of the panel, deterministically, and the slot is
// refilled with the panel of `stages` steps later. The edges are those of the production kernels'
// rings (device/tma_pipeline.cuh, device/pipeline.cuh), as barriers in shared memory:
//
//            producer                                   consumer warps
//   acquire: waits for empty[s]         <- reuse -      release: arrive at empty[s]
//   issue:   the copies of the panel,   - ready ->      wait:    for landed[s]
//            which arrive at landed[s]                  read:    the sum, and work behind it
//
// Between the two ends of the ready edge a relay can stand, a warp that sees panels land and holds
// each back until its load has taken as long as it is told: landed[s] -> relay -> ready[s].
#pragma once

#include <cstdint>

// Of what host and device both compute.
#ifdef __CUDACC__
#define GEMMD_LAB_BOTH __host__ __device__
#else
#define GEMMD_LAB_BOTH
#endif

namespace gemmd::lab {

enum class Mechanism : uint8_t { kCpAsync, kTma };

// What is left out; all else stays as it is. A warp that is not waited for gives its slot back
// before it reads it, and one that reads too early waits for the copies behind its reading: each
// barrier still has all of its arrivals, so that nobody waits for ever.
enum class Fault : uint8_t {
  kNone,
  kNoReuse,             // the slot is refilled without waiting for its readers
  kReuseAfterSome,      // all warps are waited for but the last
  kNoReady,             // the slot is read without waiting for its panel
  kIssueForCompletion,  // what is waited for is the issue of the copies, not their landing
};
inline constexpr int kFaults = 5;

// A panel: 32 rows of 32 words of the array. In its slot, the 16-byte chunk c of row r lies at
// c ^ (r % 8), as the tensor map's swizzle says; cp.async does the same by hand.
inline constexpr int kPanelRows = 32;
inline constexpr int kPanelRowWords = 32;
inline constexpr int kPanelWords = kPanelRows * kPanelRowWords;
inline constexpr int kPanelBytes = kPanelWords * 4;

inline constexpr int kWarps = 4;  // that consume; each sums a quarter of the rows
inline constexpr int kWarpWords = kPanelWords / kWarps;
inline constexpr int kProducerWarps = 2;  // of TMA copies one thread issues all
inline constexpr int kRelayWarp = kWarps + kProducerWarps;
inline constexpr int kThreads = (kRelayWarp + 1) * 32;  // of a block
inline constexpr int kMaxStages = 8;
inline constexpr int kMostRegisters = 32;  // of a thread of the whole ring, untraced
inline constexpr int kFixedBytes = 1024;   // barriers and notes, before the slots

// What a slot holds before anything was copied into it.
inline constexpr uint32_t kPoison = 0xffffffff;

// A round of work behind the sum: x * kWorkFactor + kWorkTerm.
inline constexpr uint32_t kWorkFactor = 1664525, kWorkTerm = 1013904223;

// Moments of a step, as the first lane of a warp reads its SM's clock.
enum class Moment : uint8_t {
  kWait,     // a consumer begins to wait for the panel
  kReady,    // it may read
  kRead,     // it has read and worked, and gives the slot back
  kAcquire,  // the producer begins to wait for the slot
  kFree,     // it may refill it, and begins to issue the copies
  kIssued,   // it has issued them
  kLanded,   // the relay sees that they have landed
};
inline constexpr int kMoments = 7;
// A trace's warps: the consumers, the producer, the relay.
inline constexpr int kTracedProducer = kWarps, kTracedRelay = kWarps + 1, kTraceWarps = kWarps + 2;

// Words of a block's trace: [step][warp][moment]; what a warp has no part in is 0.
GEMMD_LAB_BOTH constexpr int64_t TraceWords(int steps) {
  return int64_t{steps} * kTraceWarps * kMoments;
}

// What a launch's blocks do; host and device have it in common.
struct RingSettings {
  int steps = 1;   // of a block
  int panels = 1;  // of a strip, that it walks over and over; at most the array's
  int stages = 2;
  int stage_bytes = kPanelBytes;  // from slot to slot: more than a panel costs residency
  int work = 0;                   // rounds a warp, behind each sum
  uint32_t load_clocks = 0;   // at least, from a panel's issue to its being ready; above 0, and in
                              // a trace, a relay stands between
  uint32_t delay_clocks = 0;  // of the last warp, before it reads
  bool loads = true;          // false: nothing is copied; a slot is ready when it is free
  bool consumes = true;       // false: nothing is read
  int trace_blocks = 0;       // the first of the grid, whose moments are written down
};

// What a block reports, of its first thread. Clocks of the SM, modulo 2^32.
struct BlockReport {
  uint32_t clocks = 0;      // of all steps
  uint32_t wait_ready = 0;  // of these, waiting for panels
  uint32_t sum = 0;         // of the first warp's sums: keeps the work alive
};

// The array's words: a function of the seed and the word's place, the same on host and device.
GEMMD_LAB_BOTH constexpr uint32_t ArrayWord(uint32_t seed, uint32_t place) {
  uint32_t x = place + seed * 0x9e3779b9U;
  x = (x ^ x >> 16) * 0x85ebca6bU;
  x = (x ^ x >> 13) * 0xc2b2ae35U;
  return x ^ x >> 16;
}
// What word `word` of a panel counts for in the sum: odd, so that any one wrong word shows.
GEMMD_LAB_BOTH constexpr uint32_t WordFactor(uint32_t word) { return 2 * word + 1; }

}  // namespace gemmd::lab
