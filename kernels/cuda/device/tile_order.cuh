// Which tile of D a block computes.
#pragma once

#include <cuda_runtime.h>

namespace gemmd {

// Tile rows that are walked together: blocks that run at the same time then share a few rows of A
// and columns of B, which stay in L2.
inline constexpr int kTileGroup = 8;

struct TileCoord {
  int m, n;  // in tiles
};

// Column by column within groups of kTileGroup tile rows. `index` < m_tiles * n_tiles.
__device__ __forceinline__ TileCoord TileAt(unsigned index, int m_tiles, int n_tiles) {
  const unsigned group_tiles = static_cast<unsigned>(kTileGroup) * n_tiles;
  const unsigned group = index / group_tiles;
  const int first_m = static_cast<int>(group) * kTileGroup;
  const int rows = min(kTileGroup, m_tiles - first_m);
  const unsigned within = index - group * group_tiles;
  return {first_m + static_cast<int>(within % rows), static_cast<int>(within / rows)};
}

}  // namespace gemmd
