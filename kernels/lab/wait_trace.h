// When the waits of a production kernel began and ended. The kernel is the production one, with a
// probe in its two waiting verbs that also writes down each wait; it puts them behind the launch's
// counters.
#pragma once

#include <cstdint>

#include "kernels/cuda/gemm_params.h"

namespace gemmd::lab {

// One wait of a warp, by its SM's clock.
struct Wait {
  uint32_t reuse = 0;  // 1: for a slot to be free; 0: for a panel to have landed
  uint32_t begin = 0, end = 0;
};

inline constexpr int kTracedWarps = 16;   // as many as a block may have
inline constexpr int kTracedWaits = 512;  // of a warp; later ones are left out

struct WarpWaits {
  uint32_t count = 0;
  Wait waits[kTracedWaits];
};

struct BlockWaits {
  WarpWaits warps[kTracedWarps];
};

// `counters` of a launch point to kStallBytes, this, and `blocks` of BlockWaits. Zeroed, but for
// `blocks`.
struct TraceHeader {
  uint32_t blocks = 0;  // the first of the grid, whose waits are written down
  uint32_t grid = 0;    // blocks of the launch, which writes it
};

// Of bf16 operands, A row by row and B transposed. A row of the table without one has null.
const void* TracedEntry(int row);
const void* TracedTmaEntry(int row);  // of the TMA rows: their objects are for sm_90 alone

}  // namespace gemmd::lab
