// fp16 and bf16 products on Hopper: bulk tensor copies (TMA) into a ring of stages, wgmma out of
// it.
//
// A block stays on its SM and walks tiles of D, one after another (persistent). Its warpgroups have
// roles:
//
//   warpgroup 0      producer: one thread issues the copies of K step after K step, across tiles,
//                    as far ahead as the ring allows
//   warpgroups 1, 2  consumers: each multiplies its half of the tile's rows, then finishes and
//   stores
//                    it while the producer already fills the ring for the next tile
//
// Registers move from the producer to the consumers (setmaxnreg), whose accumulators fill most of
// theirs. tma_pipeline.cuh has the ring's rules.
//
// A panel in shared memory is a row of 128-byte wide boxes, swizzled by the copy engine. Where K
// runs along the stored row, one box holds all of the panel's rows and 64 elements of K; where M or
// N does, each box holds 64 elements of it and the 64 K values of the step. wgmma reads both kinds.
// Edges of M, N and K are filled with zeros by the load and cut off by the store.
#pragma once

#include "kernels/cuda/device/epilogue.cuh"
#include "kernels/cuda/device/ptx/sm90.cuh"
#include "kernels/cuda/device/ptx/wgmma.cuh"
#include "kernels/cuda/device/tile_order.cuh"
#include "kernels/cuda/device/tma_pipeline.cuh"
#include "kernels/cuda/tma_params.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd {

inline constexpr int kWarpgroup = 128;      // threads
inline constexpr int kBoxRowElements = 64;  // 128 bytes
inline constexpr int kAtomBytes = 1024;     // 8 rows of 128 bytes: the swizzle's period

// One operand's panel: kMn elements along M or N, 64 along K.
template <int kMn, bool kKContiguous>
struct TmaPanel {
  static constexpr int kBytes = kMn * kBoxRowElements * 2;
  static constexpr int kBoxes = kKContiguous ? 1 : kMn / kBoxRowElements;
  static constexpr int kBoxBytes = kBytes / kBoxes;
  static_assert(kMn <= 256 && kMn % kBoxRowElements == 0);

  __device__ static void Load(uint32_t panel, const CUtensorMap* map, uint32_t barrier, int mn,
                              int k, int matrix) {
    if constexpr (kKContiguous) {
      ptx::cp_async_bulk_tensor_3d_load(panel, map, barrier, k, mn, matrix);
    } else {
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        ptx::cp_async_bulk_tensor_3d_load(panel + box * kBoxBytes, map, barrier,
                                          mn + box * kBoxRowElements, k, matrix);
      }
    }
  }

  // wgmma's matrix descriptor for 16 K values from `k`, of the panel's part that starts at `mn` (a
  // multiple of 64). Fields in units of 16 bytes: start (0-13), leading offset (16-29), stride
  // offset (32-45); 128-byte swizzle (62-63 = 1).
  //   K-contiguous: stride = 8 rows of M or N; the leading offset is not used.
  //   K-strided:    stride = 8 rows of K; leading = 64 elements of M or N, one box.
  __device__ static uint64_t Descriptor(uint32_t panel, int mn, int k) {
    const uint32_t start = kKContiguous ? panel + mn * 128 + k * 2
                                        : panel + mn / kBoxRowElements * kBoxBytes + k * 128;
    constexpr uint64_t kLeading = kKContiguous ? 1 : kBoxBytes >> 4;
    constexpr uint64_t kStride = kAtomBytes >> 4;
    return (static_cast<uint64_t>(start & 0x3ffff) >> 4) | kLeading << 16 | kStride << 32 |
           uint64_t{1} << 62;
  }
};

template <int kRow, typename T, bool kTransA, bool kTransB>
struct WgmmaTile {
  static constexpr KernelConfig kCfg = kKernelTable[kRow].config;
  static constexpr int kBlockM = kCfg.block_m, kBlockN = kCfg.block_n, kBlockK = kCfg.block_k;
  static constexpr int kConsumers = kCfg.warps_m / 4;   // warpgroups
  static constexpr int kGroupM = kBlockM / kConsumers;  // rows of a warpgroup
  static constexpr int kFragsM = kGroupM / 64;          // wgmmas along m
  static constexpr int kAcc = kBlockN / 2;              // registers of one of them
  using PanelA = TmaPanel<kBlockM, !kTransA>;
  using PanelB = TmaPanel<kBlockN, kTransB>;
  using Accumulators = float[kFragsM][kAcc];
  static constexpr uint32_t kStageBytes = PanelA::kBytes + PanelB::kBytes;

  // Through which results leave: 64 rows of 128 bytes, two a warpgroup.
  static constexpr int kStoreBytes = 64 * 128;
  static constexpr int kStoreBuffers = 2;

  static_assert(kBlockK == kBoxRowElements && kGroupM % 64 == 0);
  static_assert(kStageBytes == StageBytes(kCfg));
  static_assert(kStageBytes % kAtomBytes == 0 && PanelA::kBytes % kAtomBytes == 0);
  static_assert(kFragsM * kAcc <= 128, "more accumulators spill");

  // The K steps of one tile. Slots are released one step late, when the wgmmas that read them are
  // known to be done while the next step's already run. A ring of one slot cannot wait for that:
  // its only slot must be released before it can be filled again.
  __device__ static void Multiply(Accumulators& acc, const TmaRing& ring, RingState& state,
                                  WaitCounter& waits, uint32_t stages_base, int group, int k_tiles,
                                  bool release) {
    const bool single = ring.stages() == 1;
    int previous = 0;
    for (int step = 0; step < k_tiles; ++step) {
      ring.ConsumerWait(state, waits);
      const uint32_t panel_a = stages_base + state.slot * kStageBytes;
      const uint32_t panel_b = panel_a + PanelA::kBytes;
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < kBlockK; k += 16) {
#pragma unroll
        for (int i = 0; i < kFragsM; ++i) {
          ptx::wgmma_m64k16<T, kBlockN, kTransA, !kTransB>(
              acc[i], PanelA::Descriptor(panel_a, group * kGroupM + i * 64, k),
              PanelB::Descriptor(panel_b, 0, k), step > 0 || k > 0);
        }
      }
      ptx::wgmma_commit_group();
      if (single) {
        ptx::wgmma_wait_group<0>();
        if (release) ring.ConsumerRelease(state.slot);
      } else {
        ptx::wgmma_wait_group<1>();
        if (release && step > 0) ring.ConsumerRelease(previous);
      }
      previous = state.slot;
      state.Advance(ring.stages());
    }
    ptx::wgmma_wait_group<0>();
    if (release && !single) ring.ConsumerRelease(previous);
  }

  // D = alpha * acc and nothing else: scaled on the way to shared memory, stored from there by the
  // copy engine in boxes of 64 rows and 128 bytes, two buffers in turn, so that the last stores run
  // on under the next tile's products. Out is the type of D.
  template <typename Out>
  __device__ static void StorePlain(const TmaParams& params, const Accumulators& acc,
                                    uint32_t buffers, int& turn, int barrier_id, int batch,
                                    int row0, int col0) {
    constexpr int kBoxCols = 128 / sizeof(Out);
    const int thread = threadIdx.x % kWarpgroup;
    const GemmParams& p = params.gemm;
#pragma unroll
    for (int i = 0; i < kFragsM; ++i) {
#pragma unroll
      for (int box = 0; box < kBlockN / kBoxCols; ++box) {
        const uint32_t buffer = buffers + turn * kStoreBytes;
        // The store that last read this buffer was issued kStoreBuffers turns ago.
        if (thread == 0) ptx::cp_async_bulk_wait_group_read<kStoreBuffers - 1>();
        ptx::bar_sync(barrier_id, kWarpgroup);
        FillBox<Out>(acc[i], box * kBoxCols, p.alpha, buffer);
        ptx::fence_proxy_async_shared();
        ptx::bar_sync(barrier_id, kWarpgroup);
        if (thread == 0) {
          const int row = row0 + i * 64, col = col0 + box * kBoxCols;
          if (row < p.m && col < p.n) {
            ptx::cp_async_bulk_tensor_3d_store(&params.d, buffer, col, row, batch);
          }
          ptx::cp_async_bulk_commit_group();
        }
        turn ^= 1;
      }
    }
  }

  // 128 bytes wide, from column `acc_col` of the accumulators; 16-byte chunk c of row r lies at
  // c ^ (r % 8), as the map's swizzle says.
  template <typename Out>
  __device__ static void FillBox(const float (&acc)[kAcc], int acc_col, float alpha,
                                 uint32_t buffer) {
    const int thread = threadIdx.x % kWarpgroup, lane = thread % 32, warp = thread / 32;
#pragma unroll
    for (int col = 0; col < static_cast<int>(128 / sizeof(Out)); col += 16) {
      const float* x = &acc[(acc_col + col) / 2];  // 8 columns, 8 rows, a pair: 2 x 2 x 2
      if constexpr (sizeof(Out) == 2) {
        const int row = warp * 16 + lane % 16, chunk = col / 8 + lane / 16;
        ptx::stmatrix_x4(
            buffer + row * 128 + ((chunk ^ (row & 7)) << 4), Pack<Out>(alpha * x[0], alpha * x[1]),
            Pack<Out>(alpha * x[2], alpha * x[3]), Pack<Out>(alpha * x[4], alpha * x[5]),
            Pack<Out>(alpha * x[6], alpha * x[7]));
      } else {
#pragma unroll
        for (int half = 0; half < 4; ++half) {
          const int row = warp * 16 + lane / 4 + half % 2 * 8;
          const int chunk = col / 4 + half / 2 * 2 + lane % 4 / 2;
          ptx::st_shared_v2(buffer + row * 128 + ((chunk ^ (row & 7)) << 4) + lane % 2 * 8,
                            alpha * x[half * 2], alpha * x[half * 2 + 1]);
        }
      }
    }
  }

  // Everything else: raw accumulators go through shared memory, 64 rows by 32 columns at a time,
  // and whole runs of a row are finished and stored from there. The walk over the boxes is a loop,
  // not unrolled: its body holds every activation, and as many copies of it as there are boxes
  // would not stay in the instruction cache.
  template <typename Out>
  __device__ static void StoreFinished(const GemmParams& p, const Accumulators& acc, char* buffer,
                                       int barrier_id, int batch, int row0, int col0) {
    constexpr int kBoxes = kFragsM * kBlockN / 32, kRuns = 64 * 32 / 8;
#pragma unroll 1
    for (int box = 0; box < kBoxes; ++box) {
      ptx::bar_sync(barrier_id, kWarpgroup);
#pragma unroll
      for (int candidate = 0; candidate < kBoxes; ++candidate) {  // registers need constant indices
        if (box == candidate) {
          FillBox<float>(acc[candidate * 32 / kBlockN], candidate * 32 % kBlockN, 1.0F,
                         ptx::SharedAddress(buffer));
        }
      }
      ptx::bar_sync(barrier_id, kWarpgroup);
#pragma unroll 1
      for (int run = threadIdx.x % kWarpgroup; run < kRuns; run += kWarpgroup) {
        const int row = run / 4, chunk = run % 4 * 2;
        const auto at = [&](int c) {
          return *reinterpret_cast<const float4*>(buffer + row * 128 + ((c ^ (row & 7)) << 4));
        };
        const float4 low = at(chunk), high = at(chunk + 1);
        float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        FinishRun<Out>(p, batch, row0 + box * 32 / kBlockN * 64 + row,
                       col0 + box * 32 % kBlockN + chunk * 4, x);
      }
    }
    // The next tile's plain bytes must not overtake these reads; the barrier that opens its first
    // box sees to that.
  }

  template <typename Out>
  __device__ static uint32_t Pack(float x0, float x1) {
    const Out low = FromFloat<Out>(x0), high = FromFloat<Out>(x1);
    return static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(&low)) |
           static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(&high)) << 16;
  }
};

template <int kRow, typename T, bool kTransA, bool kTransB>
__global__ void __launch_bounds__(Threads(kKernelTable[kRow].config), 1)
    GemmTmaWgmma(const __grid_constant__ TmaParams params) {
  using Tile = WgmmaTile<kRow, T, kTransA, kTransB>;
  // Registers of a thread: 168 of 384 at launch; 40 + 2 * 232 = 504 = 3 * 168. One consumer has as
  // many as it can use anyway.
  constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  constexpr bool kMoveRegisters = Tile::kConsumers == 2;
  extern __shared__ __align__(1024) char smem[];
  const GemmParams& p = params.gemm;
  const uint32_t base = ptx::SharedAddress(smem);
  const uint32_t stages_base = base;
  const uint32_t stores_base = stages_base + p.stages * Tile::kStageBytes;
  const TmaRing ring(stores_base + Tile::kConsumers * Tile::kStoreBuffers * Tile::kStoreBytes,
                     p.stages);

  if (threadIdx.x == 0) {
    ring.Init(Tile::kConsumers * 4);
    ptx::prefetch_tensormap(&params.a);
    ptx::prefetch_tensormap(&params.b);
    ptx::prefetch_tensormap(&params.d);
  }
  __syncthreads();

  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int64_t tiles_of_one = int64_t{p.m_tiles} * p.n_tiles;
  const int64_t tiles = tiles_of_one * p.batch;
  const bool probe = p.counters != nullptr;
  RingState state;
  if (group == 0) {
    if constexpr (kMoveRegisters) ptx::setmaxnreg_dec<kProducerRegisters>();
    if (threadIdx.x == 0) {
      WaitCounter waits{probe};
      for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int batch = static_cast<int>(tile / tiles_of_one);
        const TileCoord at =
            TileAt(static_cast<unsigned>(tile % tiles_of_one), p.m_tiles, p.n_tiles);
        const int matrix_a = p.stride_a == 0 ? 0 : batch, matrix_b = p.stride_b == 0 ? 0 : batch;
        for (int step = 0; step < p.k_tiles; ++step) {
          const uint32_t barrier = ring.ProducerAcquire(state, Tile::kStageBytes, waits);
          const uint32_t panel_a = stages_base + state.slot * Tile::kStageBytes;
          Tile::PanelA::Load(panel_a, &params.a, barrier, at.m * Tile::kBlockM,
                             step * Tile::kBlockK, matrix_a);
          Tile::PanelB::Load(panel_a + Tile::PanelA::kBytes, &params.b, barrier,
                             at.n * Tile::kBlockN, step * Tile::kBlockK, matrix_b);
          state.Advance(p.stages);
        }
      }
      if (probe) atomicAdd(&p.counters[1], static_cast<unsigned long long>(waits.cycles));
    }
  } else {
    if constexpr (kMoveRegisters) ptx::setmaxnreg_inc<kConsumerRegisters>();
    const int consumer = group - 1;
    const bool leader = threadIdx.x % 32 == 0;
    const bool reporter = probe && threadIdx.x == kWarpgroup;
    const uint32_t buffers = stores_base + consumer * Tile::kStoreBuffers * Tile::kStoreBytes;
    char* const buffer = smem + (buffers - base);
    const bool plain =
        p.beta == 0.0F && p.bias_axis == BiasAxis::kNone && p.act == Activation::kNone;
    WaitCounter waits{reporter};
    uint32_t mainloop = 0, epilogue = 0, k_tiles = 0;
    int turn = 0;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const int batch = static_cast<int>(tile / tiles_of_one);
      const TileCoord at = TileAt(static_cast<unsigned>(tile % tiles_of_one), p.m_tiles, p.n_tiles);
      const int row0 = at.m * Tile::kBlockM + consumer * Tile::kGroupM;
      const int col0 = at.n * Tile::kBlockN;
      typename Tile::Accumulators acc;
      const uint32_t start = reporter ? ptx::clock() : 0;
      Tile::Multiply(acc, ring, state, waits, stages_base, consumer, p.k_tiles, leader);
      const uint32_t multiplied = reporter ? ptx::clock() : 0;
      if (plain && p.f32_result) {
        Tile::template StorePlain<float>(params, acc, buffers, turn, group, batch, row0, col0);
      } else if (plain) {
        Tile::template StorePlain<T>(params, acc, buffers, turn, group, batch, row0, col0);
      } else if (p.f32_result) {
        Tile::template StoreFinished<float>(p, acc, buffer, group, batch, row0, col0);
      } else {
        Tile::template StoreFinished<T>(p, acc, buffer, group, batch, row0, col0);
      }
      if (reporter) {
        mainloop += multiplied - start;
        epilogue += ptx::clock() - multiplied;
        k_tiles += p.k_tiles;
      }
    }
    if (threadIdx.x % kWarpgroup == 0) ptx::cp_async_bulk_wait_group_read<0>();
    if (reporter) {
      atomicAdd(&p.counters[0], static_cast<unsigned long long>(waits.cycles));
      atomicAdd(&p.counters[2], static_cast<unsigned long long>(mainloop));
      atomicAdd(&p.counters[3], static_cast<unsigned long long>(epilogue));
      atomicAdd(&p.counters[4], static_cast<unsigned long long>(k_tiles));
    }
  }
}

}  // namespace gemmd
