// Which tiles of D, and which K steps of them, a block computes.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "kernels/cuda/gemm_params.h"

namespace gemmd {

struct TileCoord {
  int m, n;  // in tiles
};

// Tile rows that are walked together: blocks that run at the same time then share a few rows of A
// and columns of B, which stay in L2.
inline constexpr int kTileGroup = 8;

// Column by column within groups of kTileGroup tile rows. `index` < m_tiles * n_tiles.
__device__ __forceinline__ TileCoord TileAt(unsigned index, int m_tiles, int n_tiles) {
  const unsigned group_tiles = static_cast<unsigned>(kTileGroup) * n_tiles;
  const unsigned group = index / group_tiles;
  const int first_m = static_cast<int>(group) * kTileGroup;
  const int rows = min(kTileGroup, m_tiles - first_m);
  const unsigned within = index - group * group_tiles;
  return {first_m + static_cast<int>(within % rows), static_cast<int>(within / rows)};
}

// The work of one persistent block: every so-manyth part of a tile. Neighbours have the same part
// of neighbouring tiles, which read the same panels. Producer and consumers each walk the same.
class TileWalk {
 public:
  // `rank` is the block's place in its pair, 0 without one; pairs are neighbours along M or N. The
  // walk takes every `turns`th of the block's, from the `turn`th on.
  __device__ TileWalk(const GemmParams& p, int rank, bool pairs_along_m, int turn, int turns)
      : p_(p),
        rank_(rank),
        pairs_along_m_(pairs_along_m),
        turns_(turns),
        next_((p.pair ? blockIdx.x / 2 : blockIdx.x) + turn * Step()) {}

  // The next part, which is a whole tile where p.parts is 1; false at the end. Counts of all parts
  // fit 32 bits (LaunchTma).
  __device__ bool Next() {
    const unsigned tiles_of_one = static_cast<unsigned>(p_.m_tiles) * p_.n_tiles;
    const unsigned tiles = tiles_of_one * p_.batch;
    if (next_ >= tiles * p_.parts) return false;
    unsigned tile = next_;
    part_ = 0;
    if (p_.parts > 1) {
      part_ = static_cast<int>(tile / tiles);
      tile -= part_ * tiles;
    }
    batch_ = 0;
    if (p_.batch > 1) {
      batch_ = static_cast<int>(tile / tiles_of_one);
      tile -= batch_ * tiles_of_one;
    }
    at_ = TileAt(tile, p_.m_tiles, p_.n_tiles);
    if (p_.pair) {
      int& along = pairs_along_m_ ? at_.m : at_.n;
      along = 2 * along + rank_;
    }
    next_ += turns_ * Step();
    return true;
  }

  __device__ int batch() const { return batch_; }
  __device__ TileCoord at() const { return at_; }
  __device__ int part() const { return part_; }
  // A part's K steps are every p.parts-th, from its own number on: at any time all parts read the
  // same stretch of K, in whole lines and pages of memory.
  __device__ int FirstStep() const { return part_; }
  __device__ int Steps() const {
    return p_.parts > 1 ? (p_.k_tiles - part_ + p_.parts - 1) / p_.parts : p_.k_tiles;
  }

 private:
  // From one of the block's to the next.
  __device__ unsigned Step() const { return p_.pair ? gridDim.x / 2 : gridDim.x; }

  const GemmParams& p_;
  const int rank_;
  const bool pairs_along_m_;
  const int turns_;
  unsigned next_;
  TileCoord at_{};
  int batch_ = 0, part_ = 0;
};

}  // namespace gemmd
