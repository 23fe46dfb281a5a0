// fp16 and bf16 products on Hopper: bulk tensor copies (TMA) into a ring of stages, wgmma out of
// it.
//
// A block stays on its SM and walks tiles of D, one after another (persistent). Its warpgroups have
// roles:
//
//   warpgroup 0      producer: one thread issues the copies of K step after K step, across tiles,
//                    as far ahead as the ring allows
//   the others       consumers, one to three: each multiplies its share of the tile's rows, then
//                    finishes and stores it while the producer already fills the ring for the next
//                    tile; or, in ping-pong, two that take whole tiles in turn
//
// Registers move from the producer to the consumers (setmaxnreg), whose accumulators fill most of
// theirs. tma_pipeline.cuh has the ring's rules.
//
// A panel in shared memory is a row of 128-byte wide boxes (64 where it is narrower), swizzled by
// the copy engine. Where K runs along the stored row, each box holds all of the panel's rows and 64
// elements of K; where M or N does, each box holds 64 elements of it and the K values of the step.
// wgmma reads both kinds. Loads fill what lies beyond K with zeros. What they bring from beyond M
// or N, zeros or whatever is there, only meets elements of D that the store cuts off.
//
// Fewer tiles than SMs, and a long K: each tile is computed in parts, matrices of their own, which
// a second kernel adds up (instances/sum_parts.cu). Blocks may work in pairs that share a panel
// (tma_pipeline.cuh).
#pragma once

#include "kernels/cuda/device/epilogue.cuh"
#include "kernels/cuda/device/ptx/sm90.cuh"
#include "kernels/cuda/device/ptx/wgmma.cuh"
#include "kernels/cuda/device/stall_probe.cuh"
#include "kernels/cuda/device/tile_order.cuh"
#include "kernels/cuda/device/tma_pipeline.cuh"
#include "kernels/cuda/tma_params.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd {

inline constexpr int kWarpgroup = 128;       // threads
inline constexpr int kBoxRowElements = 64;   // 128 bytes
inline constexpr int kSwizzlePeriod = 1024;  // bytes: 8 rows of 128

// One operand's panel: kMn elements along M or N, kK along K.
template <int kMn, int kK, bool kKContiguous>
struct TmaPanel {
  static constexpr int kRowElements =
      kKContiguous || kMn >= kBoxRowElements ? kBoxRowElements : kMn;
  static constexpr int kRowBytes = kRowElements * 2;  // of a box, and the swizzle's width
  static constexpr int kBytes = (kKContiguous ? kMn : TmaPanelRow(kMn)) * kK * 2;
  static constexpr int kBoxes = (kKContiguous ? kK : TmaPanelRow(kMn)) / kRowElements;
  static constexpr int kBoxBytes = kBytes / kBoxes;
  static constexpr int kBoxRows = kKContiguous ? kMn : kK;
  static_assert(kMn <= 256 && kK <= 256 && kBoxes * kBoxBytes == kBytes);
  static_assert(kBoxRows / 2 * kRowBytes % 1024 == 0, "halves keep the swizzle's phase");
  static_assert(kRowBytes == 128 || kRowBytes == 64);

  __device__ static void Load(uint32_t panel, const CUtensorMap* map, uint32_t barrier, int mn,
                              int k, int matrix) {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int along_row = (kKContiguous ? k : mn) + box * kRowElements;
      ptx::cp_async_bulk_tensor_3d_load(panel + box * kBoxBytes, map, barrier, along_row,
                                        kKContiguous ? mn : k, matrix);
    }
  }

  // Half of every box's rows, for both blocks of a pair; the other block loads the other half. The
  // map's boxes have half as many rows.
  __device__ static void LoadHalf(int rank, uint32_t panel, const CUtensorMap* map,
                                  uint32_t barrier, int mn, int k, int matrix) {
    const int row = rank * (kBoxRows / 2);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int along_row = (kKContiguous ? k : mn) + box * kRowElements;
      ptx::cp_async_bulk_tensor_3d_load_multicast(panel + box * kBoxBytes + row * kRowBytes, map,
                                                  barrier, along_row, (kKContiguous ? mn : k) + row,
                                                  matrix, 0b11);
    }
  }

  // wgmma's matrix descriptor, in units of 16 bytes: start (bits 0-13), leading offset (16-29),
  // stride offset (32-45); swizzle (62-63): 1 for 128 bytes, 2 for 64.
  //   K-contiguous: stride = 8 rows of M or N; the leading offset is not used.
  //   K-strided:    stride = 8 rows of K; leading = a row's elements of M or N, one box.
  // A block's own shared memory takes 18 bits of an address (a cluster's windows have more); so the
  // low word of any place in the ring is that of the first panel plus a distance.
  static constexpr uint32_t kHigh = 8 * kRowBytes >> 4 | (kRowBytes == 128 ? 1u : 2u) << 30;
  static constexpr uint32_t kLeading = kKContiguous ? 1 : kBoxBytes >> 4;
  __device__ static uint32_t Low(uint32_t address) {
    return (address & 0x3ffff) >> 4 | kLeading << 16;
  }

  // Distance to 16 K values from `k`, of the part that starts at `mn` (a multiple of 64).
  __device__ static constexpr uint32_t Distance(int mn, int k) {
    const int along_row = kKContiguous ? k : mn, row = kKContiguous ? mn : k;
    return (along_row / kRowElements * kBoxBytes + row * kRowBytes +
            along_row % kRowElements * 2) >>
           4;
  }
};

template <int kRow, typename T, bool kTransA, bool kTransB>
struct WgmmaTile {
  static constexpr KernelConfig kCfg = kKernelTable[kRow].config;
  static constexpr int kBlockM = kCfg.block_m, kBlockN = kCfg.block_n, kBlockK = kCfg.block_k;
  static constexpr int kConsumers = Consumers(kCfg);  // warpgroups
  static constexpr bool kPingPong = kCfg.ping_pong;
  static constexpr int kSharers = ConsumersOfTile(kCfg);
  static constexpr int kGroupM = kBlockM / kSharers;  // rows of a warpgroup
  static constexpr int kFragsM = kGroupM / 64;        // wgmmas along m
  static constexpr int kAcc = kBlockN / 2;            // registers of one of them
  using PanelA = TmaPanel<kBlockM, kBlockK, !kTransA>;
  using PanelB = TmaPanel<kBlockN, kBlockK, kTransB>;
  using Accumulators = float[kFragsM][kAcc];
  static constexpr uint32_t kStageBytes = StageBytes(kCfg);
  static constexpr bool kPairsAlongM = PairsAlongM(kCfg);

  static constexpr int kStoreBoxBytes = static_cast<int>(kTmaStoreBoxBytes);

  static_assert(kBlockK % kBoxRowElements == 0 && kGroupM % 64 == 0);
  static_assert(PanelA::kBytes + PanelB::kBytes <= kStageBytes);
  static_assert(kStageBytes % kSwizzlePeriod == 0 && PanelA::kBytes % kSwizzlePeriod == 0);
  // The barriers' part of shared memory: the ring's from its start, these before its end.
  static constexpr int kTurnsOffset = static_cast<int>(kTmaBarrierBytes) - TmaTurns::kBytes;
  static constexpr int kSumsOffset = kTurnsOffset - kConsumers * TileSums::kBytes;
  static_assert(kCfg.max_stages * TmaRing::kBarrierBytes <= kSumsOffset);
  static_assert(kSumsOffset % TileSums::kBytes == 0);
  static_assert(kFragsM * kAcc <= (kPingPong ? 192 : 128), "more accumulators spill");
  static_assert(!kPingPong || kConsumers == 2);

  // `steps` K steps of one tile. Slots are released one step late, when the wgmmas that read them
  // are known to be done while the next step's already run. A ring of one slot cannot wait for
  // that: its only slot must be released before it can be filled again.
  template <typename Waits>
  __device__ static void Multiply(Accumulators& acc, const TmaRing& ring, const TmaTurns& turns,
                                  RingState& state, Waits& waits, uint32_t stages_base, int share,
                                  int steps, int lane) {
    const bool single = ring.stages() == 1;
    const uint32_t first_a = PanelA::Low(stages_base) + PanelA::Distance(share * kGroupM, 0);
    const uint32_t first_b = PanelB::Low(stages_base + PanelA::kBytes);
    int previous = 0;
    for (int step = 0; step < steps; ++step) {
      // The same in all threads already; said so, the descriptors stay in uniform registers, and
      // small tiles are not bound by moving them there.
      const uint32_t slot = __shfl_sync(0xffffffff, state.slot, 0);
      ring.ConsumerWait(state, waits);
      const uint32_t low_a = first_a + slot * (kStageBytes >> 4);
      const uint32_t low_b = first_b + slot * (kStageBytes >> 4);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < kBlockK; k += 16) {
#pragma unroll
        for (int i = 0; i < kFragsM; ++i) {
          ptx::wgmma_m64k16<T, kBlockN, kTransA, !kTransB>(
              acc[i], ptx::Join(low_a + PanelA::Distance(i * 64, k), PanelA::kHigh),
              ptx::Join(low_b + PanelB::Distance(0, k), PanelB::kHigh), step > 0 || k > 0);
        }
      }
      ptx::wgmma_commit_group();
      if (single) {
        ptx::wgmma_wait_group<0>();
        ring.ConsumerRelease(state.slot, lane);
      } else {
        ptx::wgmma_wait_group<1>();
        if (step > 0) ring.ConsumerRelease(previous, lane);
      }
      previous = state.slot;
      state.Advance(ring.stages());
    }
    if constexpr (kPingPong) turns.Pass(lane);
    ptx::wgmma_wait_group<0>();
    if (!single) ring.ConsumerRelease(previous, lane);
  }

  // Of a box of results: as many as the tile has.
  template <typename Out>
  static constexpr int kStoreRowBytes = TmaStoreRowBytes(kCfg, sizeof(Out));

  // Boxes of kCols columns in a row of the tile.
  template <int kCols>
  static constexpr int kBoxesOf = static_cast<int>(CeilDiv(kBlockN, kCols));

  // First column of one of the boxes of `cols` columns that a tile leaves in. Where they do not
  // fill it, the last one begins earlier and has some columns of the one before it again.
  __device__ static constexpr int BoxColumn(int box, int cols) {
    return box * cols + cols > kBlockN ? kBlockN - cols : box * cols;
  }

  __device__ static int StoreBuffers(const GemmParams& p) {
    return kPingPong ? 2 : p.store_buffers;
  }

  // D = alpha * acc and nothing else: scaled on the way to shared memory, stored from there by the
  // copy engine, box by box, as many at a time as there are buffers. The last stores run on under
  // the next tile's products. Out is the type of D.
  template <typename Out>
  __device__ static void StorePlain(const TmaParams& params, const Accumulators& acc,
                                    uint32_t buffers, int barrier_id, int batch, int row0,
                                    int col0) {
    constexpr int kBoxCols = kStoreRowBytes<Out> / sizeof(Out), kBoxesN = kBoxesOf<kBoxCols>;
    constexpr int kBoxes = kFragsM * kBoxesN;
    const GemmParams& p = params.gemm;
    const bool storer = threadIdx.x % kWarpgroup == 0;
    int filled = 0;
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      if (filled == 0) {
        if (storer) ptx::cp_async_bulk_wait_group_read<0>();
        ptx::bar_sync(barrier_id, kWarpgroup);
      }
      FillBox<Out>(acc[box / kBoxesN], BoxColumn(box % kBoxesN, kBoxCols), p.alpha,
                   buffers + filled * kStoreBoxBytes);
      ++filled;
      if (filled < StoreBuffers(p) && box + 1 < kBoxes) continue;
      ptx::fence_proxy_async_shared();
      ptx::bar_sync(barrier_id, kWarpgroup);
      if (storer) {
        for (int i = 0; i < filled; ++i) {
          const int stored = box + 1 - filled + i;
          const int row = row0 + stored / kBoxesN * 64;
          const int col = col0 + BoxColumn(stored % kBoxesN, kBoxCols);
          if (row >= p.m || col >= p.n) continue;
          ptx::cp_async_bulk_tensor_3d_store(&params.d, buffers + i * kStoreBoxBytes, col, row,
                                             batch);
        }
        ptx::cp_async_bulk_commit_group();
      }
      filled = 0;
    }
  }

  // From column `acc_col` of the accumulators, 128 bytes wide, with the 16-byte chunk c of row r at
  // c ^ (r % 8), or 64 wide, with it at c ^ (r / 2 % 4): as the map's swizzle says.
  template <typename Out>
  __device__ static void FillBox(const float (&acc)[kAcc], int acc_col, float alpha,
                                 uint32_t buffer) {
    constexpr int kRowBytes = kStoreRowBytes<Out>;
    const int thread = threadIdx.x % kWarpgroup, lane = thread % 32, warp = thread / 32;
    const auto place = [&](int row, int chunk) {
      const int swizzle = kRowBytes == 128 ? row & 7 : row >> 1 & 3;
      return buffer + row * kRowBytes + ((chunk ^ swizzle) << 4);
    };
#pragma unroll
    for (int col = 0; col < kRowBytes / static_cast<int>(sizeof(Out)); col += 16) {
      const float* x = &acc[(acc_col + col) / 2];  // 8 columns, 8 rows, a pair: 2 x 2 x 2
      if constexpr (sizeof(Out) == 2) {
        const int row = warp * 16 + lane % 16, chunk = col / 8 + lane / 16;
        ptx::stmatrix_x4(place(row, chunk), Pack<Out>(alpha * x[0], alpha * x[1]),
                         Pack<Out>(alpha * x[2], alpha * x[3]),
                         Pack<Out>(alpha * x[4], alpha * x[5]),
                         Pack<Out>(alpha * x[6], alpha * x[7]));
      } else {
#pragma unroll
        for (int half = 0; half < 4; ++half) {
          const int row = warp * 16 + lane / 4 + half % 2 * 8;
          const int chunk = col / 4 + half / 2 * 2 + lane % 4 / 2;
          ptx::st_shared_v2(place(row, chunk) + lane % 2 * 8, alpha * x[half * 2],
                            alpha * x[half * 2 + 1]);
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
    constexpr int kBoxesN = kBoxesOf<32>, kBoxes = kFragsM * kBoxesN;
    constexpr int kRuns = 64 * 32 / 8;
#pragma unroll 1
    for (int box = 0; box < kBoxes; ++box) {
      ptx::bar_sync(barrier_id, kWarpgroup);
#pragma unroll
      for (int candidate = 0; candidate < kBoxes; ++candidate) {  // registers need constant indices
        if (box == candidate) {
          FillBox<float>(acc[candidate / kBoxesN], BoxColumn(candidate % kBoxesN, 32), 1.0F,
                         ptx::SharedAddress(buffer));
        }
      }
      ptx::bar_sync(barrier_id, kWarpgroup);
      const int box_row = box / kBoxesN * 64, box_col = BoxColumn(box % kBoxesN, 32);
      const int again = box % kBoxesN * 32 - box_col;  // columns that the last box has stored
#pragma unroll 1
      for (int run = threadIdx.x % kWarpgroup; run < kRuns; run += kWarpgroup) {
        const int row = run / 4, chunk = run % 4 * 2;
        if (chunk * 4 < again) continue;
        const auto at = [&](int c) {
          return *reinterpret_cast<const float4*>(buffer + row * 128 + ((c ^ (row & 7)) << 4));
        };
        const float4 low = at(chunk), high = at(chunk + 1);
        float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        FinishRun<Out>(p, batch, row0 + box_row + row, col0 + box_col + chunk * 4, x);
      }
    }
    // The next tile's plain bytes must not overtake these reads; the barrier that opens its first
    // box sees to that.
  }

  // The tile from (m, n) of D's matrix on, of which this consumer has its rows in `acc`. `buffers`
  // are the consumer's own. Out is the type of D.
  template <typename Out>
  __device__ static void Store(const TmaParams& params, const Accumulators& acc, char* buffers,
                               int consumer, int matrix, int m, int n) {
    const GemmParams& p = params.gemm;
    const int row0 = m + (kPingPong ? 0 : consumer * kGroupM), barrier_id = consumer + 1;
    if (p.beta == 0.0F && p.bias_axis == BiasAxis::kNone && p.act == Activation::kNone) {
      StorePlain<Out>(params, acc, ptx::SharedAddress(buffers), barrier_id, matrix, row0, n);
      return;
    }
    StoreFinished<Out>(p, acc, buffers, barrier_id, matrix, row0, n);
  }

  template <typename Out>
  __device__ static uint32_t Pack(float x0, float x1) {
    const Out low = FromFloat<Out>(x0), high = FromFloat<Out>(x1);
    return static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(&low)) |
           static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(&high)) << 16;
  }
};

// Waits: WaitCounter, or what stands for it.
template <int kRow, typename T, bool kTransA, bool kTransB, typename Waits = WaitCounter>
__global__ void __launch_bounds__(Threads(kKernelTable[kRow].config), 1)
    GemmTmaWgmma(const __grid_constant__ TmaParams params) {
  using Tile = WgmmaTile<kRow, T, kTransA, kTransB>;
  // Registers of a thread: those of a launch of all warpgroups, moved from the producer to the
  // consumers. 24 + 2 * 240 = 56 + 2 * 224 = 3 * 168; 32 + 3 * 160 = 4 * 128. One consumer has as
  // many as it can use anyway.
  constexpr bool kMoveRegisters = Tile::kConsumers > 1;
  constexpr int kProducerRegisters = Tile::kConsumers == 3 ? 32 : Tile::kPingPong ? 24 : 56;
  constexpr int kConsumerRegisters = Tile::kConsumers == 3 ? 160 : Tile::kPingPong ? 240 : 224;
  extern __shared__ __align__(1024) char smem[];
  const GemmParams& p = params.gemm;
  constexpr uint32_t kRingOffset = kTmaBarrierBytes;
  const uint32_t stages_base = ptx::SharedAddress(smem) + kRingOffset;
  const uint32_t store_bytes = Tile::StoreBuffers(p) * Tile::kStoreBoxBytes;  // of a consumer
  const TmaRing ring(ptx::SharedAddress(smem), p.stages, p.pair ? 2 : 1);
  const uint32_t turns_base = ptx::SharedAddress(smem) + Tile::kTurnsOffset;

  if (threadIdx.x == 0) {
    if constexpr (Tile::kPingPong) TmaTurns::Init(turns_base);
    ring.Init(Tile::kSharers * 4);
    ptx::prefetch_tensormap(&params.a);
    ptx::prefetch_tensormap(&params.b);
    ptx::prefetch_tensormap(&params.d);
  }
  if (p.pair) {
    ptx::cluster_sync_relaxed();  // the initialised barriers have a fence of their own
  } else {
    __syncthreads();
  }
  // All of the above runs while the kernel before still does.
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  const int group = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  const bool probe = p.counters != nullptr;
  const int rank = p.pair ? static_cast<int>(ptx::cluster_ctarank()) : 0;
  RingState state;
  if (group == 0) {
    if constexpr (kMoveRegisters) ptx::setmaxnreg_dec<kProducerRegisters>();
    if (threadIdx.x == 0) {
      TileWalk walk(p, rank, Tile::kPairsAlongM, 0, 1);
      Waits waits(p.counters, probe);
      while (walk.Next()) {
        const int matrix_a = p.stride_a == 0 ? 0 : walk.batch();
        const int matrix_b = p.stride_b == 0 ? 0 : walk.batch();
        const int m = walk.at().m * Tile::kBlockM, n = walk.at().n * Tile::kBlockN;
        for (int step = walk.FirstStep(); step < p.k_tiles; step += p.parts) {
          const uint32_t barrier = ring.ProducerAcquire(state, p.stage_bytes, waits);
          const uint32_t panel_a = stages_base + state.slot * Tile::kStageBytes;
          const uint32_t panel_b = panel_a + Tile::PanelA::kBytes;
          const int k = step * Tile::kBlockK;
          if (p.pair && !Tile::kPairsAlongM) {
            Tile::PanelA::LoadHalf(rank, panel_a, &params.a, barrier, m, k, matrix_a);
          } else {
            Tile::PanelA::Load(panel_a, &params.a, barrier, m, k, matrix_a);
          }
          if (p.pair && Tile::kPairsAlongM) {
            Tile::PanelB::LoadHalf(rank, panel_b, &params.b, barrier, n, k, matrix_b);
          } else {
            Tile::PanelB::Load(panel_b, &params.b, barrier, n, k, matrix_b);
          }
          state.Advance(p.stages);
        }
      }
      if (probe) {
        atomicAdd(&StallSlot(p.counters)[1], static_cast<unsigned long long>(waits.cycles));
      }
    }
  } else {
    if constexpr (kMoveRegisters) ptx::setmaxnreg_inc<kConsumerRegisters>();
    const int consumer = group - 1;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int share = Tile::kPingPong ? 0 : consumer;  // of a tile's rows
    // In ping-pong both consumers report; a wait for the turn is none for panels.
    const bool reporter =
        probe && (Tile::kPingPong ? threadIdx.x % kWarpgroup == 0 : threadIdx.x == kWarpgroup);
    TileSums sums(smem + Tile::kSumsOffset + consumer * TileSums::kBytes);
    if (reporter) sums.Clear();
    char* const buffers =
        smem + kRingOffset + p.stages * Tile::kStageBytes + consumer * store_bytes;
    // In ping-pong, every other tile and its steps are the other consumer's. There are no parts
    // then: all tiles have the same steps.
    TmaTurns turns(turns_base, consumer);
    TileWalk walk(p, rank, Tile::kPairsAlongM, Tile::kPingPong ? consumer : 0,
                  Tile::kPingPong ? 2 : 1);
    if constexpr (Tile::kPingPong) state.Skip(consumer * p.k_tiles, p.stages);
    while (walk.Next()) {
      const int steps = walk.Steps();
      if constexpr (Tile::kPingPong) turns.Wait();
      Waits waits(p.counters, reporter);
      typename Tile::Accumulators acc;
      const uint32_t start = reporter ? ptx::clock() : 0;
      Tile::Multiply(acc, ring, turns, state, waits, stages_base, share, steps, lane);
      const uint32_t multiplied = reporter ? ptx::clock() : 0;
      const int matrix = walk.batch() * p.parts + walk.part();
      const int m = walk.at().m * Tile::kBlockM, n = walk.at().n * Tile::kBlockN;
      if (p.f32_result) {
        Tile::template Store<float>(params, acc, buffers, consumer, matrix, m, n);
      } else {
        Tile::template Store<T>(params, acc, buffers, consumer, matrix, m, n);
      }
      if (reporter) sums.Add(waits.cycles, multiplied - start, ptx::clock() - multiplied, steps);
      if constexpr (Tile::kPingPong) state.Skip(p.k_tiles, p.stages);
    }
    if (reporter) sums.Report(p.counters);
    if (threadIdx.x % kWarpgroup == 0) ptx::cp_async_bulk_wait_group_read<0>();
  }
  // The other block of a pair may still fill this one's slots, or tell it of its own.
  if (p.pair) ptx::cluster_sync_relaxed();
}

}  // namespace gemmd
