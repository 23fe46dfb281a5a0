// fp32 products with FFMA (IEEE multiply and accumulate), through the same ring as the mma kernel.
//
// Threads form a grid of kThreadsM x kThreadsN; each owns kPerM x kPerN elements of the tile of D.
// Panels stay as the matrix is stored. Where K runs along a row, a thread reads four K values of
// each of its rows at once, and its rows are kThreads* apart, so that neighbours read neighbouring
// rows (padded to different banks). Where M or N runs along a row, a thread reads four adjacent
// elements of one K value.
#pragma once

#include "kernels/cuda/device/epilogue.cuh"
#include "kernels/cuda/device/pipeline.cuh"
#include "kernels/cuda/device/ptx/ptx.cuh"
#include "kernels/cuda/device/stall_probe.cuh"
#include "kernels/cuda/device/tile_order.cuh"
#include "kernels/cuda/gemm_params.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd {

// One operand's panel: kMn elements along M or N, kK along K, shared by kAcross threads that own
// kPer elements each along M or N.
template <int kMn, int kK, bool kKContiguous, int kAcross, int kThreads>
struct SimtPanel {
  static constexpr int kPer = kMn / kAcross;
  static constexpr int kRows = kKContiguous ? kMn : kK;
  static constexpr int kCols = kKContiguous ? kK : kMn;
  static constexpr int kRowFloats = kCols + (kKContiguous ? kSimtPadElements : 0);
  static constexpr int kFloats = kRows * kRowFloats;
  static constexpr int kChunks = kCols / 4;  // of 16 bytes
  static constexpr int kRowsPerPass = kThreads / kChunks;
  static constexpr int kPasses = kRows / kRowsPerPass;
  static_assert(kRowsPerPass * kPasses == kRows);
  static_assert(kPer % 4 == 0);

  // Place in the tile of element `i` of thread `t` along M or N.
  __device__ static constexpr int Place(int t, int i) {
    return kKContiguous ? t + kAcross * i : 4 * t + i % 4 + 4 * kAcross * (i / 4);
  }

  // Issues this thread's share of a step's copies. The panel starts at mn0 and k0 of the matrix.
  __device__ static void Load(float* panel, const float* matrix, int64_t ld, int mn0, int mn,
                              int k0, int k) {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int first = static_cast<int>(threadIdx.x) / kChunks;
    const int row0 = kKContiguous ? mn0 : k0, rows = kKContiguous ? mn : k;
    const int col = (kKContiguous ? k0 : mn0) + chunk * 4, cols = kKContiguous ? k : mn;
    const int bytes = min(max((cols - col) * 4, 0), 16);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = first + pass * kRowsPerPass;
      ptx::cp_async_cg_16(ptx::SharedAddress(panel + row * kRowFloats + chunk * 4),
                          matrix + (row0 + row) * ld + col, row0 + row < rows ? bytes : 0);
    }
  }

  // Elements of thread `t` for K values k to k + 3.
  __device__ static void Read(float (&out)[4][kPer], const float* panel, int t, int k) {
    if constexpr (kKContiguous) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        const float4 v = *reinterpret_cast<const float4*>(panel + Place(t, i) * kRowFloats + k);
        out[0][i] = v.x, out[1][i] = v.y, out[2][i] = v.z, out[3][i] = v.w;
      }
    } else {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int i = 0; i < kPer; i += 4) {
          const float4 v =
              *reinterpret_cast<const float4*>(panel + (k + q) * kRowFloats + Place(t, i));
          out[q][i] = v.x, out[q][i + 1] = v.y, out[q][i + 2] = v.z, out[q][i + 3] = v.w;
        }
      }
    }
  }
};

template <int kRow, bool kTransA, bool kTransB>
struct SimtTile {
  static constexpr KernelConfig kCfg = kKernelTable[kRow].config;
  static constexpr int kThreadsN = 16;
  static constexpr int kThreads = Threads(kCfg);
  static constexpr int kThreadsM = kThreads / kThreadsN;
  using PanelA = SimtPanel<kCfg.block_m, kCfg.block_k, !kTransA, kThreadsM, kThreads>;
  using PanelB = SimtPanel<kCfg.block_n, kCfg.block_k, kTransB, kThreadsN, kThreads>;
  using Accumulators = float[PanelA::kPer][PanelB::kPer];

  static constexpr int kStageFloats = static_cast<int>(StageBytes(kCfg) / 4);
  static_assert(PanelA::kFloats + PanelB::kFloats <= kStageFloats);
  static_assert(kThreadsM * kCfg.block_n <= kStageFloats, "the epilogue's rows fit the ring");
  static_assert(kCfg.max_stages <= kMaxCpAsyncStages);

  __device__ static void Multiply(Accumulators& acc, const float* stage, int tm, int tn) {
#pragma unroll
    for (int k = 0; k < kCfg.block_k; k += 4) {
      float a[4][PanelA::kPer], b[4][PanelB::kPer];
      PanelA::Read(a, stage, tm, k);
      PanelB::Read(b, stage + PanelA::kFloats, tn, k);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int i = 0; i < PanelA::kPer; ++i) {
#pragma unroll
          for (int j = 0; j < PanelB::kPer; ++j) acc[i][j] = fmaf(a[q][i], b[q][j], acc[i][j]);
        }
      }
    }
  }

  // kThreadsM rows at a time through shared memory, so that every store is 16 bytes of a row.
  __device__ static void Store(const GemmParams& p, int64_t batch, const Accumulators& acc,
                               float* scratch, int tm, int tn, int row0, int col0) {
    constexpr int kRuns = kCfg.block_n / 4;
#pragma unroll
    for (int i = 0; i < PanelA::kPer; ++i) {
#pragma unroll
      for (int j = 0; j < PanelB::kPer; ++j) {
        scratch[tm * kCfg.block_n + PanelB::Place(tn, j)] = acc[i][j];
      }
      __syncthreads();
#pragma unroll 1
      for (int item = threadIdx.x; item < kThreadsM * kRuns; item += kThreads) {
        const int row = item / kRuns, run = item % kRuns;
        const float4 v = *reinterpret_cast<const float4*>(scratch + row * kCfg.block_n + run * 4);
        float x[4] = {v.x, v.y, v.z, v.w};
        FinishRun<float>(p, batch, row0 + PanelA::Place(row, i), col0 + run * 4, x);
      }
      __syncthreads();
    }
  }
};

// Grid: x = tiles of one product, z = products (walked when there are more than z may be).
template <int kRow, bool kTransA, bool kTransB>
__global__ void __launch_bounds__(Threads(kKernelTable[kRow].config),
                                  kKernelTable[kRow].config.min_blocks_per_sm)
    GemmCpAsyncSimt(const __grid_constant__ GemmParams p) {
  constexpr KernelConfig kCfg = kKernelTable[kRow].config;
  using Tile = SimtTile<kRow, kTransA, kTransB>;
  extern __shared__ __align__(128) char smem[];
  float* const ring = reinterpret_cast<float*>(smem);
  const int tm = static_cast<int>(threadIdx.x) / Tile::kThreadsN;
  const int tn = static_cast<int>(threadIdx.x) % Tile::kThreadsN;
  const TileCoord tile = TileAt(blockIdx.x, p.m_tiles, p.n_tiles);
  const int row0 = tile.m * kCfg.block_m, col0 = tile.n * kCfg.block_n;

  StallProbe probe(p.counters);
  CpAsyncPipeline pipeline(p.stages);
  for (int batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    const uint32_t start = probe.Now();
    const float* a = static_cast<const float*>(p.a) + batch * p.stride_a;
    const float* b = static_cast<const float*>(p.b) + batch * p.stride_b;
    typename Tile::Accumulators acc = {};
    RunPipeline(
        pipeline, probe, p.k_tiles,
        [&](int slot, int step) {
          float* stage = ring + slot * Tile::kStageFloats;
          const int k0 = step * kCfg.block_k;
          Tile::PanelA::Load(stage, a, p.lda, row0, p.m, k0, p.k);
          Tile::PanelB::Load(stage + Tile::PanelA::kFloats, b, p.ldb, col0, p.n, k0, p.k);
        },
        [&](int slot) { Tile::Multiply(acc, ring + slot * Tile::kStageFloats, tm, tn); });
    probe.AddMainloop(start, p.k_tiles);

    const uint32_t epilogue_start = probe.Now();
    Tile::Store(p, batch, acc, ring, tm, tn, row0, col0);
    probe.AddEpilogue(epilogue_start);
  }
  probe.Report();
}

}  // namespace gemmd
