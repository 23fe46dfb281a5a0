// Kernels that use the TMA ring and nothing else of the products' kernels.
#pragma once

#include <cstdint>

#include <cuda.h>

namespace gemmd {

// A step's box: 64 rows of 128 bytes, of which each block of a pair loads half of the rows.
inline constexpr int kRingBoxRows = 64;
inline constexpr int kRingRowWords = 32;  // of 4 bytes
inline constexpr int kRingBoxWords = kRingBoxRows * kRingRowWords;
inline constexpr int kRingBoxBytes = kRingBoxWords * 4;
inline constexpr int kRingStageBytes = kRingBoxBytes + 16;  // with its two barriers
inline constexpr int kRingTurnBytes = 16;

// Dynamic shared memory of a launch.
constexpr int RingBytes(int stages) { return stages * kRingStageBytes + kRingTurnBytes; }

inline constexpr int kRingProducerThreads = 128;
inline constexpr int kMaxRingConsumerWarps = 8;

// Odd, as are the words' factors: any one wrong word or step makes another sum.
inline constexpr uint32_t kRingStepFactor = 0x01000193;

// Who loses time now and then: up to 2 us, before and after each verb, as the seed decides.
enum class RingDelay : uint8_t { kNobody, kProducer, kOneWarp, kEverybody };

// What consumers do wrong, to show that the sums tell. kReadsBeforeItsTurn is for ping-pong with 2
// tiles of 2 * stages steps: the second consumer's first wait ends when the slot's first use lands.
enum class RingFault : uint8_t {
  kNone,
  kReadsBeforeItWaits,
  kReleasesBeforeItReads,
  kReadsBeforeItsTurn
};

struct RingParams {
  // Boxes of kRingBoxRows rows, or of half of them for a pair and for the count of arrivals; the
  // rows of a matrix are a tile's steps, one after another.
  CUtensorMap map;
  uint32_t* results = nullptr;
  int stages = 1;
  int consumer_warps = 4;  // that read a tile
  int k_tiles = 1;         // steps of a tile
  int tiles = 1;           // of a block, or of a pair
  uint32_t seed = 0;
  bool pair = false;       // launched in clusters of 2 blocks
  bool ping_pong = false;  // two consumers, of 4 warps each, take tiles in turn
  RingDelay delay = RingDelay::kNobody;
  RingFault fault = RingFault::kNone;
};

// Any grid of whole pairs; threads: kRingProducerThreads + 32 * consumer_warps, of these twice as
// many in ping-pong. Group g, a block or a pair, passes matrices g * tiles and on through the ring,
// and each of a tile's consumer warps reads all of each box. All modulo 2^32:
//   box sum = the sum of words[i] * (2 * i + 1), row after row
//   sum     = sum * kRingStepFactor + box sum, step after step, from 0 at each tile
// Results: [block][tile][consumer warp], the sum.
const void* RingSumsEntry();

// One block or one pair, of one warp each. Makes the arrivals and the bytes that end the first
// phase of each slot's barriers come one by one; matrix 0 has the bytes. Results:
// [block][slot][2], after which event of those below the barrier's phase ended, 0 for none:
//   full    1: the first block acquires; 2: half of the bytes; 3: the second block of a pair
//           acquires, or nothing; 4: the other half
//   empty   n: the n-th release by a warp, from the blocks in turn
const void* RingArrivalsEntry();

}  // namespace gemmd
