// The shape of one kernel, as data. Host-only arithmetic: planner, launchers, kernels and tests all
// take a kernel's sizes from here.
#pragma once

#include <cstdint>

namespace gemmd {

enum class Family : uint8_t {
  kCpAsyncMma,    // fp16, bf16: cp.async ring, ldmatrix, mma.sync; sm_80 and newer
  kCpAsyncSimt,   // fp32: cp.async ring, FFMA; sm_80 and newer
  kTmaWgmma,      // fp16, bf16: TMA ring, warp-specialised wgmma, persistent; sm_90
  kGemv,          // fp16, bf16 with M or N of 4 and less: FFMA, no tile, no ring; sm_80 and newer
  kEpilogueOnly,  // no product (alpha = 0 or K = 0): D = act(beta * C + bias)
  kBlas,          // a CPU's BLAS; no stages
};

// Structural, so that it can be a template argument.
struct KernelConfig {
  Family family{};
  int block_m = 0, block_n = 0, block_k = 0;  // elements of the tile of D, and of one K step
  int warps_m = 0, warps_n = 0;               // warps along m and n of the tile
  int min_blocks_per_sm = 1;                  // the residency that the register budget is set for
  int max_stages = 0;                         // 0: no ring
  // Of the TMA kernel: its consumer warpgroups take whole tiles in turn, and one stores while the
  // other multiplies; else they share each tile's rows.
  bool ping_pong = false;
};

// The TMA kernel has a warpgroup more than those that multiply: the producer's.
constexpr int Threads(const KernelConfig& c) {
  return 32 * (c.warps_m * c.warps_n + (c.family == Family::kTmaWgmma ? 4 : 0));
}

// Warpgroups of the TMA kernel that multiply, and how many of them share a tile.
constexpr int Consumers(const KernelConfig& c) { return c.warps_m / 4; }
constexpr int ConsumersOfTile(const KernelConfig& c) { return c.ping_pong ? 1 : Consumers(c); }

constexpr int ElementBytes(const KernelConfig& c) {
  switch (c.family) {
    case Family::kCpAsyncMma:
    case Family::kTmaWgmma:
    case Family::kGemv: return 2;
    case Family::kCpAsyncSimt: return 4;
    case Family::kEpilogueOnly:
    case Family::kBlas: return 0;
  }
  return 0;
}

// Rows of a K-contiguous fp32 panel are padded by 16 bytes: the FFMA kernel reads them down a
// column of threads, and without the pad those reads share banks. 16-bit panels are swizzled.
inline constexpr int kSimtPadElements = 4;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements along M or N of a panel of the TMA kernel that has K along its lines: whole rows of 128
// bytes, or one of 64.
constexpr int TmaPanelRow(int block) {
  return block < 64 ? block : static_cast<int>(CeilDiv(block, 64)) * 64;
}

// Bytes of one stage: a panel of A and a panel of B, either way round.
constexpr int64_t StageBytes(const KernelConfig& c) {
  if (c.family == Family::kTmaWgmma) {
    return int64_t{TmaPanelRow(c.block_m) + TmaPanelRow(c.block_n)} * c.block_k * ElementBytes(c);
  }
  const int64_t row = c.block_k + (c.family == Family::kCpAsyncSimt ? kSimtPadElements : 0);
  return (c.block_m + c.block_n) * row * ElementBytes(c);
}

// Rows of accumulators that a warp of the mma kernel turns from fragments into whole rows at a
// time, in its own corner of the ring once the main loop has ended; padded against bank conflicts.
inline constexpr int kEpilogueRows = 16;
inline constexpr int kEpiloguePadFloats = 8;

constexpr int EpilogueRowFloats(const KernelConfig& c) {
  return c.block_n / c.warps_n + kEpiloguePadFloats;
}
constexpr int64_t EpilogueBytes(const KernelConfig& c) {
  if (c.family != Family::kCpAsyncMma) return 0;
  return int64_t{4} * c.warps_m * c.warps_n * kEpilogueRows * EpilogueRowFloats(c);
}

// A block of the TMA kernel has the barriers of its ring, the ring of panels, and buffers through
// which results leave: a box of 64 rows of 128 bytes each, for each consumer warpgroup as many as
// its part of a 16-bit tile has boxes. Two are enough where the ring leaves no room for that, and
// in ping-pong, where the other warpgroup multiplies all the while.
// Two a stage, turns, and the stall probe's sums; panels start at multiples of this.
inline constexpr int64_t kTmaBarrierBytes = 1024;
inline constexpr int64_t kTmaStoreBoxBytes = 64 * 128;
inline constexpr int64_t kHopperSmemBytes = 227 * 1024;  // that a block can have on sm_90

// More than half: one block an SM. Two would be uneven company, since blocks of the next launch
// take their places before those of the last have left all SMs.
inline constexpr int64_t kTmaLeastSmemBytes = kHopperSmemBytes / 2 + 1024;

constexpr int TmaStoreRowBytes(const KernelConfig& c, int64_t element_bytes) {
  return c.block_n * element_bytes < 128 ? static_cast<int>(c.block_n * element_bytes) : 128;
}

constexpr int64_t TmaBytesWith(const KernelConfig& c, int stages, int store_buffers) {
  return kTmaBarrierBytes + stages * StageBytes(c) +
         Consumers(c) * store_buffers * kTmaStoreBoxBytes;
}
constexpr int TmaStoreBoxes(const KernelConfig& c) {
  return c.block_m / ConsumersOfTile(c) / 64 * static_cast<int>(CeilDiv(c.block_n, 64));
}
constexpr int TmaStoreBuffers(const KernelConfig& c, int stages) {
  const int boxes = TmaStoreBoxes(c);
  if (c.ping_pong || boxes <= 2) return 2;
  return TmaBytesWith(c, stages, boxes) <= kHopperSmemBytes ? boxes : 2;
}
constexpr bool StoresTileAtOnce(const KernelConfig& c, int stages) {
  return c.ping_pong || TmaStoreBuffers(c, stages) >= TmaStoreBoxes(c);
}

// Two blocks may share the larger panel of their tiles, each loading half of it for both: B of
// tiles that are neighbours along M, or A of neighbours along N.
constexpr bool PairsAlongM(const KernelConfig& c) { return c.block_n >= c.block_m; }

// From one row of a matrix to the next in device memory, where the pitch is ours. Rows begin at
// whole cache lines where that adds at most one part in 16, so that a box of 128 bytes touches one
// a row and not two; else at what device memory moves at once (64 bytes), else at sectors (32), so
// that a result never leaves part of one to its neighbour; else at the copy engine's 16 bytes.
constexpr int64_t RowPitchBytes(int64_t row_bytes) {
  for (const int64_t unit : {128, 64, 32}) {
    const int64_t pitch = CeilDiv(row_bytes, unit) * unit;
    if (pitch - row_bytes <= row_bytes / 16) return pitch;
  }
  return CeilDiv(row_bytes, 16) * 16;
}

// A tile's parts meet in device memory, as matrices of fp32 that a second kernel adds up.
inline constexpr int64_t kWorkspaceBytes = int64_t{40} << 20;
inline constexpr int kMaxParts = 512;
constexpr int64_t PartPitch(int64_t n) { return (n + 31) / 32 * 32; }  // elements of a row

// Dynamic shared memory of one block at `stages` stages. The other kernels' epilogues reuse the
// ring.
constexpr int64_t SmemBytes(const KernelConfig& c, int stages) {
  const int64_t ring = stages * StageBytes(c);
  if (c.family == Family::kTmaWgmma) {
    const int64_t bytes = TmaBytesWith(c, stages, TmaStoreBuffers(c, stages));
    return bytes > kTmaLeastSmemBytes ? bytes : kTmaLeastSmemBytes;
  }
  return ring > EpilogueBytes(c) ? ring : EpilogueBytes(c);
}

// The compiler's ceiling per thread for the residency asked of it; a register file of 65536 in
// units of 8, and 255 at most. tests/device checks that no instance uses more.
constexpr int RegistersPerThread(const KernelConfig& c) {
  const int share = 65536 / (Threads(c) * c.min_blocks_per_sm) / 8 * 8;
  return share > 255 ? 255 : share;
}

}  // namespace gemmd
