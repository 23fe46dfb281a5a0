// fp16 and bf16 products through cp.async, ldmatrix and mma.sync; sm_80 and newer.
//
// A block computes one (block_m, block_n) tile of D; K is walked in steps of block_k through the
// ring of pipeline.cuh. A panel is kept in shared memory the way the matrix is stored, so that each
// 16-byte chunk of a row is one copy, whatever the transpose:
//
//   K-contiguous  A with op N, B with op T: block_m (or block_n) rows of block_k elements
//   K-strided     A with op T, B with op N: block_k rows of block_m (or block_n) elements
//
// and ldmatrix turns the second kind round on its way to registers (.trans). Chunks are swizzled by
// their row, so that the eight rows that ldmatrix reads at once lie in different banks.
//
// Edges of M, N and K: chunks outside the matrix are filled with zeros by the copy itself, which
// also cuts a chunk in the middle; the epilogue does not store outside D.
#pragma once

#include "kernels/cuda/device/epilogue.cuh"
#include "kernels/cuda/device/pipeline.cuh"
#include "kernels/cuda/device/ptx/ptx.cuh"
#include "kernels/cuda/device/stall_probe.cuh"
#include "kernels/cuda/device/tile_order.cuh"
#include "kernels/cuda/gemm_params.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd {

inline constexpr int kChunkElements = 8;  // 16-bit elements of 16 bytes

// One operand's panel: kMn elements along M or N, kK along K.
template <int kMn, int kK, bool kKContiguous>
struct PanelLayout {
  static constexpr int kRows = kKContiguous ? kMn : kK;
  static constexpr int kChunks = (kKContiguous ? kK : kMn) / kChunkElements;  // of a row
  static constexpr int kBytes = kRows * kChunks * 16;
  static_assert(kChunks == 4 || kChunks % 8 == 0,
                "the swizzles below need 64-byte or 128-byte rows");

  // Byte offset of a chunk. Eight rows of 128 bytes or more that hold the same chunk differ in
  // their low three bits; rows of 64 bytes lie two to a line of banks.
  __device__ static uint32_t Offset(int row, int chunk) {
    const int swizzled = kChunks == 4 ? chunk ^ ((row >> 1) & 3) : chunk ^ (row & 7);
    return static_cast<uint32_t>(row * kChunks + swizzled) * 16;
  }
};

// Issues a thread's share of one operand's copies, step after step in order.
template <typename T, int kMn, int kK, bool kKContiguous, int kThreads>
class PanelLoader {
  using Layout = PanelLayout<kMn, kK, kKContiguous>;
  static constexpr int kRowsPerPass = kThreads / Layout::kChunks;
  static constexpr int kPasses = Layout::kRows / kRowsPerPass;
  static_assert(kRowsPerPass * kPasses == Layout::kRows);
  static_assert(kRowsPerPass % 8 == 0, "a pass keeps the row's place in the swizzle");

 public:
  // `matrix` as stored; the panel starts at `mn0` of the `mn` elements along M or N.
  __device__ PanelLoader(const T* matrix, int64_t ld, int mn0, int mn, int k)
      : row_(static_cast<int>(threadIdx.x) / Layout::kChunks),
        chunk_(static_cast<int>(threadIdx.x) % Layout::kChunks),
        ld_(ld),
        mn_left_(mn - mn0),
        k_left_(k) {
    src_ = kKContiguous ? matrix + (mn0 + row_) * ld + chunk_ * kChunkElements
                        : matrix + row_ * ld + mn0 + chunk_ * kChunkElements;
  }

  __device__ void Load(uint32_t panel) {
    const uint32_t dst = panel + Layout::Offset(row_, chunk_);
    const int along = kKContiguous ? k_left_ : mn_left_;   // elements left along a row
    const int across = kKContiguous ? mn_left_ : k_left_;  // rows left
    const int bytes = min(max((along - chunk_ * kChunkElements) * 2, 0), 16);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = row_ + pass * kRowsPerPass;
      ptx::cp_async_cg_16(dst + pass * kRowsPerPass * Layout::kChunks * 16,
                          src_ + pass * kRowsPerPass * ld_, row < across ? bytes : 0);
    }
    src_ += kKContiguous ? kK : kK * ld_;
    k_left_ -= kK;
  }

 private:
  int row_, chunk_;  // of the first pass
  int64_t ld_;
  int mn_left_, k_left_;
  const T* src_;
};

// Four 8x8 matrices that cover 16 elements along M or N, from `mn`, and 16 along K, from `k`.
// kMnMajor orders them (mn, k): 00, 10, 01, 11 as A's fragment wants; else 00, 01, 10, 11 as B's.
template <int kMn, int kK, bool kKContiguous, bool kMnMajor>
__device__ __forceinline__ void LoadFragment(uint32_t (&r)[4], uint32_t panel, int mn, int k) {
  using Layout = PanelLayout<kMn, kK, kKContiguous>;
  const int lane = threadIdx.x % 32, matrix = lane / 8;
  const int mn_half = kMnMajor ? matrix & 1 : matrix >> 1;
  const int k_half = kMnMajor ? matrix >> 1 : matrix & 1;
  if constexpr (kKContiguous) {
    ptx::ldmatrix_x4(
        r, panel + Layout::Offset(mn + mn_half * 8 + lane % 8, k / kChunkElements + k_half));
  } else {
    ptx::ldmatrix_x4_trans(
        r, panel + Layout::Offset(k + k_half * 8 + lane % 8, mn / kChunkElements + mn_half));
  }
}

template <int kRow, typename T, bool kTransA, bool kTransB>
struct MmaTile {
  static constexpr KernelConfig kCfg = kKernelTable[kRow].config;
  static constexpr int kWarpM = kCfg.block_m / kCfg.warps_m;
  static constexpr int kWarpN = kCfg.block_n / kCfg.warps_n;
  static constexpr int kFragsM = kWarpM / 16;  // 16x8 accumulators along m
  static constexpr int kFragsN = kWarpN / 8;
  static constexpr bool kKContiguousA = !kTransA;
  static constexpr bool kKContiguousB = kTransB;
  using LayoutA = PanelLayout<kCfg.block_m, kCfg.block_k, kKContiguousA>;
  using LayoutB = PanelLayout<kCfg.block_n, kCfg.block_k, kKContiguousB>;
  using LoaderA = PanelLoader<T, kCfg.block_m, kCfg.block_k, kKContiguousA, Threads(kCfg)>;
  using LoaderB = PanelLoader<T, kCfg.block_n, kCfg.block_k, kKContiguousB, Threads(kCfg)>;
  using Accumulators = float[kFragsM][kFragsN][4];
  static constexpr uint32_t kStageBytes = StageBytes(kCfg);
  static constexpr int kRowFloats = EpilogueRowFloats(kCfg);

  static_assert(LayoutA::kBytes + LayoutB::kBytes == StageBytes(kCfg));
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kCfg.block_k % 16 == 0);
  static_assert(kCfg.max_stages <= kMaxCpAsyncStages);

  // acc += A panel * B panel, for the part of the tile that this warp owns.
  __device__ static void Multiply(Accumulators& acc, uint32_t stage, int warp_m, int warp_n) {
    const uint32_t panel_a = stage, panel_b = stage + LayoutA::kBytes;
#pragma unroll
    for (int k = 0; k < kCfg.block_k; k += 16) {
      uint32_t a[kFragsM][4], b[kFragsN / 2][4];
#pragma unroll
      for (int i = 0; i < kFragsM; ++i) {
        LoadFragment<kCfg.block_m, kCfg.block_k, kKContiguousA, true>(a[i], panel_a,
                                                                      warp_m + i * 16, k);
      }
#pragma unroll
      for (int j = 0; j < kFragsN / 2; ++j) {
        LoadFragment<kCfg.block_n, kCfg.block_k, kKContiguousB, false>(b[j], panel_b,
                                                                       warp_n + j * 16, k);
      }
#pragma unroll
      for (int i = 0; i < kFragsM; ++i) {
#pragma unroll
        for (int j = 0; j < kFragsN; ++j) {
          ptx::mma_m16n8k16<T>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  }

  // Turns accumulators into whole rows, kEpilogueRows at a time, through this warp's own corner of
  // shared memory, and finishes them in runs of 8 columns.
  __device__ static void Store(const GemmParams& p, int64_t batch, Accumulators& acc,
                               float* scratch, int row0, int col0) {
    constexpr int kRuns = kWarpN / 8;  // of a row
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kFragsM; ++i) {
#pragma unroll
      for (int j = 0; j < kFragsN; ++j) {
        float* at = scratch + lane / 4 * kRowFloats + j * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(at) = make_float2(acc[i][j][0], acc[i][j][1]);
        *reinterpret_cast<float2*>(at + 8 * kRowFloats) = make_float2(acc[i][j][2], acc[i][j][3]);
      }
      __syncwarp();
#pragma unroll 1
      for (int item = lane; item < kEpilogueRows * kRuns; item += 32) {
        const int row = item / kRuns, run = item % kRuns;
        const float4* src = reinterpret_cast<const float4*>(scratch + row * kRowFloats + run * 8);
        const float4 low = src[0], high = src[1];
        float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        const int d_row = row0 + i * 16 + row, d_col = col0 + run * 8;
        if (p.f32_result) {
          FinishRun<float>(p, batch, d_row, d_col, x);
        } else {
          FinishRun<T>(p, batch, d_row, d_col, x);
        }
      }
      __syncwarp();
    }
  }
};

// Grid: x = tiles of one product, z = products (walked when there are more than z may be).
// Probe: StallProbe, or what stands for it.
template <int kRow, typename T, bool kTransA, bool kTransB, typename Probe = StallProbe>
__global__ void __launch_bounds__(Threads(kKernelTable[kRow].config),
                                  kKernelTable[kRow].config.min_blocks_per_sm)
    GemmCpAsyncMma(const __grid_constant__ GemmParams p) {
  constexpr KernelConfig kCfg = kKernelTable[kRow].config;
  using Tile = MmaTile<kRow, T, kTransA, kTransB>;
  extern __shared__ __align__(128) char smem[];
  const uint32_t ring = ptx::SharedAddress(smem);
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % kCfg.warps_m * Tile::kWarpM;
  const int warp_n = warp / kCfg.warps_m * Tile::kWarpN;
  const TileCoord tile = TileAt(blockIdx.x, p.m_tiles, p.n_tiles);
  const int row0 = tile.m * kCfg.block_m, col0 = tile.n * kCfg.block_n;

  Probe probe(p.counters);
  CpAsyncPipeline pipeline(p.stages);
  for (int batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    const uint32_t start = probe.Now();
    typename Tile::LoaderA load_a(static_cast<const T*>(p.a) + batch * p.stride_a, p.lda, row0, p.m,
                                  p.k);
    typename Tile::LoaderB load_b(static_cast<const T*>(p.b) + batch * p.stride_b, p.ldb, col0, p.n,
                                  p.k);
    typename Tile::Accumulators acc = {};
    RunPipeline(
        pipeline, probe, p.k_tiles,
        [&](int slot, int) {
          const uint32_t stage = ring + slot * Tile::kStageBytes;
          load_a.Load(stage);
          load_b.Load(stage + Tile::LayoutA::kBytes);
        },
        [&](int slot) { Tile::Multiply(acc, ring + slot * Tile::kStageBytes, warp_m, warp_n); });
    probe.AddMainloop(start, p.k_tiles);

    const uint32_t epilogue_start = probe.Now();
    float* scratch = reinterpret_cast<float*>(smem) + warp * (kEpilogueRows * Tile::kRowFloats);
    Tile::Store(p, batch, acc, scratch, row0 + warp_m, col0 + warp_n);
    __syncthreads();  // the next product's copies overwrite the scratch
    probe.AddEpilogue(epilogue_start);
  }
  probe.Report();
}

}  // namespace gemmd
