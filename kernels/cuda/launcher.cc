#include "kernels/cuda/launcher.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/gemv_params.h"
#include "kernels/cuda/sum_parts.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/tma_params.h"
#include "kernels/pc_sampler.h"
#include "kernels/plan/gemv_shape.h"

namespace gemmd {

template <>
const void* KernelEntry<RowByName("openblas")>(DType, Op, Op) {
  return nullptr;
}

namespace {

using EntryFn = const void* (*)(DType, Op, Op);

template <size_t... kRows>
constexpr std::array<EntryFn, sizeof...(kRows)> RowEntries(std::index_sequence<kRows...>) {
  return {&KernelEntry<static_cast<int>(kRows)>...};
}
constexpr auto kEntries = RowEntries(std::make_index_sequence<kKernelRows>{});

constexpr int kMaxGridZ = 65535;
constexpr int kEpilogueThreads = 256;
constexpr int64_t kEpilogueBlocks = 4096;  // walks the rest
constexpr int kMaxSumLanes = 32;
constexpr int64_t kLeastSumBlocksPerSm = 2;
constexpr int64_t kSmemBytesOfSm = 228 * 1024;  // of Hopper's, 1 KB of a block's its own
constexpr int kTmaStoreRows = 64;               // of D's boxes
constexpr int64_t kMaxWalk = int64_t{1} << 31;  // parts of tiles: TileWalk counts in 32 bits

// What the kernel's C++ type is chosen by: the operands', or D's where there is no product.
DType EntryType(const GemmProblem& problem, int row) {
  return kKernelTable[row].config.family == Family::kEpilogueOnly ? problem.type_d : problem.type_a;
}

Status PrepareKernel(const void* entry, const KernelConfig& config, int64_t smem_limit) {
  cudaFuncAttributes attributes{};
  RETURN_IF_CUDA_ERROR(cudaFuncGetAttributes(&attributes, entry));  // loads its module
  int64_t smem = 0;
  for (int stages = 1; stages <= config.max_stages; ++stages) {
    if (SmemBytes(config, stages) <= smem_limit) smem = SmemBytes(config, stages);
  }
  if (smem == 0) return OkStatus();
  RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(smem)));
  return CudaStatus(cudaFuncSetAttribute(entry, cudaFuncAttributePreferredSharedMemoryCarveout,
                                         cudaSharedmemCarveoutMaxShared),
                    "cudaFuncSetAttribute carveout");
}

Status Load(const void* entry) {
  cudaFuncAttributes attributes{};
  return CudaStatus(cudaFuncGetAttributes(&attributes, entry), "cudaFuncGetAttributes");
}

// What a launch asks for beyond the ordinary.
struct LaunchOptions {
  // The kernel may start its set-up while the one before it on the stream still runs. It must wait
  // for that one's end (griddepcontrol.wait) before it touches global memory.
  bool overlaps_set_up = false;
  bool pairs = false;  // clusters of 2 blocks
};

cudaLaunchAttribute PairAttribute() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  return attribute;
}

template <typename Params>
Status LaunchKernel(const void* entry, dim3 grid, int threads, Params& params, int64_t smem_bytes,
                    cudaStream_t stream, LaunchOptions options = {}) {
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (options.overlaps_set_up) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (options.pairs) attributes[count++] = PairAttribute();
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(smem_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  void* arguments[] = {&params};
  return CudaStatus(cudaLaunchKernelExC(&config, entry, arguments), "cudaLaunchKernelExC");
}

Status LaunchEpilogue(const void* entry, GemmParams& params, cudaStream_t stream) {
  const int64_t items = CeilDiv(params.n, 4) * params.m * params.batch;
  const int64_t blocks = std::min(CeilDiv(items, kEpilogueThreads), kEpilogueBlocks);
  return LaunchKernel(entry, dim3(static_cast<unsigned>(blocks)), kEpilogueThreads, params, 0,
                      stream);
}

StatusOr<int> SmCount() {
  int device = 0, sms = 0;
  RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  return sms;
}

// The sum's blocks start while the product's still run, and wait for them. Left alone they gather
// on the few SMs that are free by then, or free first, up to 16 on one, and the sum gets no more
// than these SMs can load. Shared memory that nobody uses keeps all but `blocks_per_sm` off an SM.
// Where many SMs are free, all blocks must find room there: one that does not starts late.
int64_t SumSmemBytes(int64_t blocks, int64_t blocks_before, int sms) {
  const int64_t free = sms - blocks_before;
  const int64_t spread = 4 * free >= sms ? free : CeilDiv(2 * sms, 3);
  const int64_t blocks_per_sm = std::max(kLeastSumBlocksPerSm, CeilDiv(blocks, spread));
  return kSmemBytesOfSm / (blocks_per_sm + 1) / 1024 * 1024;
}

Status LaunchGemv(const GemmProblem& problem, const Plan& plan, const GemmParams& params,
                  cudaStream_t stream) {
  ASSIGN_OR_RETURN(const int sms, SmCount());
  const GemvShape shape = GemvShapeOf(problem, sms);
  GemvParams gemv;
  gemv.gemm = params;
  gemv.matrix = params.b, gemv.matrix_ld = params.ldb, gemv.matrix_stride = params.stride_b;
  gemv.vectors = params.a, gemv.vectors_ld = params.lda, gemv.vectors_stride = params.stride_a;
  if (!shape.vectors_are_rows) {
    std::swap(gemv.matrix, gemv.vectors);
    std::swap(gemv.matrix_ld, gemv.vectors_ld);
    std::swap(gemv.matrix_stride, gemv.vectors_stride);
  }
  gemv.lines = static_cast<int>(shape.lines);
  gemv.count = shape.vectors;
  gemv.vectors_are_rows = shape.vectors_are_rows;
  gemv.warps_per_line = shape.warps_per_line;
  gemv.lanes_across = shape.lanes_across;
  gemv.lines_of_block = shape.lines_of_block();
  const void* entry = GemvEntry(problem.type_a, shape.vectors_of_kernel(),
                                shape.matrix_k_contiguous, shape.vectors_k_contiguous);
  const dim3 grid(static_cast<unsigned>(shape.blocks()), 1,
                  static_cast<unsigned>(std::min(params.batch, kMaxGridZ)));
  return LaunchKernel(entry, grid, Threads(kKernelTable[plan.row].config), gemv, plan.smem_bytes,
                      stream);
}

// The description of one operand for the copy engine. A box is a row wide along the stored row: K
// where that is contiguous, and then it holds all of the panel's lines, or those that there are;
// else M or N, and then it holds the K values of one step. Half of that where a pair of blocks
// shares the panel.
//
// Boxes that reach beyond the operand are slow. Along K they must: what they find there counts.
// Along M and N it does not, and what follows in memory is taken for part of the row.
struct PanelMap {
  CUtensorMap map;
  int64_t bytes = 0;  // that a stage's boxes bring
};
StatusOr<PanelMap> MapPanel(const void* base, DType type, const MatrixLayout& layout, int64_t ld,
                            int64_t stride, int64_t matrices, int lines, int block_k,
                            bool k_contiguous, bool shared) {
  int64_t box_rows = k_contiguous ? lines : block_k;
  if (shared) {
    box_rows /= 2;
  } else if (k_contiguous) {
    box_rows = std::min(box_rows, layout.rows);
  }
  const int64_t row_bytes = std::min<int64_t>(k_contiguous ? block_k : lines, 64) * 2;
  const int64_t box_cols = row_bytes / 2;
  const int64_t cols = k_contiguous ? layout.cols : CeilDiv(layout.cols, box_cols) * box_cols;
  PanelMap panel;
  ASSIGN_OR_RETURN(panel.map, MakeTensorMap({.base = base,
                                             .type = type,
                                             .rows = layout.rows,
                                             .cols = cols,
                                             .matrices = stride == 0 ? 1 : matrices,
                                             .ld = ld,
                                             .matrix_stride = stride,
                                             .box_rows = static_cast<int>(box_rows),
                                             .box_row_bytes = static_cast<int>(row_bytes)}));
  if (!k_contiguous) lines = TmaPanelRow(lines);
  panel.bytes = (k_contiguous && !shared ? box_rows : lines) * block_k * 2;
  return panel;
}

// Adds up what `params.parts` parts left in the workspace, by `blocks_before` blocks on `sms` SMs.
Status LaunchSum(const GemmProblem& problem, const GemmParams& params, const GemmParams& parts,
                 int64_t blocks_before, int sms, cudaStream_t stream) {
  SumParams sum;
  sum.gemm = params;
  sum.parts = static_cast<const float*>(parts.d);
  sum.ld = parts.ldd, sum.stride = parts.stride_d;
  const int64_t items = CeilDiv(params.n, 4) * params.m * params.batch;
  while (1 << sum.log2_lanes < kMaxSumLanes && kSumPartsOfLane << sum.log2_lanes < params.parts) {
    ++sum.log2_lanes;
  }
  const int64_t blocks = std::min(CeilDiv(items << sum.log2_lanes, kSumThreads), kEpilogueBlocks);
  return LaunchKernel(SumPartsEntry(problem.type_d), dim3(static_cast<unsigned>(blocks)),
                      kSumThreads, sum, SumSmemBytes(blocks, blocks_before, sms), stream,
                      {.overlaps_set_up = true});
}

// One persistent block an SM, or one a part of a tile where those are fewer.
Status LaunchTma(const void* entry, const GemmProblem& problem, const Plan& plan,
                 const GemmParams& params, cudaStream_t stream) {
  const KernelConfig& config = kKernelTable[plan.row].config;
  TmaParams tma;
  tma.gemm = params;
  GemmParams& gemm = tma.gemm;
  const bool leaves_parts = plan.split_k > 1;
  if (leaves_parts) {  // they are its result, as sums and nothing else
    if (params.workspace == nullptr) return Internal(ToString(plan) + " has no workspace");
    gemm.d = params.workspace;
    gemm.ldd = PartPitch(problem.n), gemm.stride_d = problem.m * gemm.ldd;
    gemm.alpha = 1.0F, gemm.beta = 0.0F;
    gemm.bias_axis = BiasAxis::kNone;
    gemm.act = Activation::kNone;
    gemm.f32_result = true;
  }
  ASSIGN_OR_RETURN(const PanelMap a,
                   MapPanel(params.a, problem.type_a, problem.a, params.lda, params.stride_a,
                            problem.batch, config.block_m, config.block_k, problem.op_a == Op::kN,
                            plan.pair && !PairsAlongM(config)));
  ASSIGN_OR_RETURN(const PanelMap b,
                   MapPanel(params.b, problem.type_b, problem.b, params.ldb, params.stride_b,
                            problem.batch, config.block_n, config.block_k, problem.op_b == Op::kT,
                            plan.pair && PairsAlongM(config)));
  tma.a = a.map, tma.b = b.map;
  ASSIGN_OR_RETURN(
      tma.d, MakeTensorMap({.base = gemm.d,
                            .type = leaves_parts ? DType::kF32 : problem.type_d,
                            .rows = problem.m,
                            .cols = problem.n,
                            .matrices = leaves_parts ? problem.batch * plan.split_k : problem.batch,
                            .ld = gemm.ldd,
                            .matrix_stride = gemm.stride_d,
                            .box_rows = kTmaStoreRows,
                            .box_row_bytes = TmaStoreRowBytes(
                                config, SizeOf(leaves_parts ? DType::kF32 : problem.type_d))}));
  gemm.stage_bytes = static_cast<uint32_t>(a.bytes + b.bytes);
  gemm.store_buffers = TmaStoreBuffers(config, plan.stages);
  gemm.pair = plan.pair;
  if (plan.pair) {
    int& paired = PairsAlongM(config) ? gemm.m_tiles : gemm.n_tiles;
    paired = (paired + 1) / 2;
  }
  ASSIGN_OR_RETURN(const int sms, SmCount());
  const int64_t parts = int64_t{gemm.m_tiles} * gemm.n_tiles * gemm.batch * gemm.parts;
  if (parts > kMaxWalk) {
    return ResourceExhausted(ToString(problem) + " has " + std::to_string(parts) +
                             " parts of tiles, above the limit " + std::to_string(kMaxWalk));
  }
  const int64_t blocks =
      plan.pair ? 2 * std::min<int64_t>(parts, sms / 2) : std::min<int64_t>(parts, sms);
  RETURN_IF_ERROR(LaunchKernel(entry, dim3(static_cast<unsigned>(blocks)), Threads(config), tma,
                               plan.smem_bytes, stream,
                               {.overlaps_set_up = plan.early_start, .pairs = plan.pair}));
  return leaves_parts ? LaunchSum(problem, params, gemm, blocks, sms, stream) : OkStatus();
}

// Fills in the rest of `params`.
Status LaunchPrepared(const void* entry, const GemmProblem& problem, const Plan& plan,
                      GemmParams params, cudaStream_t stream) {
  const KernelConfig& config = kKernelTable[plan.row].config;
  params.m = static_cast<int>(problem.m);
  params.n = static_cast<int>(problem.n);
  params.k = static_cast<int>(problem.k);
  params.batch = static_cast<int>(problem.batch);
  params.stages = plan.stages;
  params.parts = plan.split_k;
  params.alpha = static_cast<float>(problem.alpha);
  params.beta = static_cast<float>(problem.beta);
  params.bias_axis = problem.bias;
  params.act = problem.act;
  params.f32_result = problem.type_d == DType::kF32 && problem.type_a != DType::kF32;

  if (config.family == Family::kEpilogueOnly) return LaunchEpilogue(entry, params, stream);
  if (config.family == Family::kGemv) return LaunchGemv(problem, plan, params, stream);
  params.m_tiles = static_cast<int>(CeilDiv(problem.m, config.block_m));
  params.n_tiles = static_cast<int>(CeilDiv(problem.n, config.block_n));
  params.k_tiles = static_cast<int>(CeilDiv(problem.k, config.block_k));
  if (int64_t{params.m_tiles} * params.n_tiles > kMaxExtent) {
    return ResourceExhausted(ToString(problem) + " has " + std::to_string(params.m_tiles) + " x " +
                             std::to_string(params.n_tiles) + " tiles, above the limit " +
                             std::to_string(kMaxExtent));
  }
  if (config.family == Family::kTmaWgmma) {
    return LaunchTma(entry, problem, plan, params, stream);
  }
  const dim3 grid(static_cast<unsigned>(params.m_tiles) * static_cast<unsigned>(params.n_tiles), 1,
                  static_cast<unsigned>(std::min(params.batch, kMaxGridZ)));
  return LaunchKernel(entry, grid, Threads(config), params, plan.smem_bytes, stream);
}

StatusOr<int> SmemLimit() {
  int device = 0, bytes = 0;
  RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

StatusOr<bool> IsHopper() {
  int device = 0, major = 0, minor = 0;
  RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

struct EntryOfKernel {
  const void* entry;
  int kernel;  // as of PcSamples
};

// Of every function that Launch may launch.
std::vector<EntryOfKernel> AllEntries(bool hopper) {
  std::vector<EntryOfKernel> all;
  for (int row = 0; row < kKernelRows; ++row) {
    // There is code for these on no other device.
    if (kKernelTable[row].config.family == Family::kTmaWgmma && !hopper) continue;
    for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
      for (const Op op_a : {Op::kN, Op::kT}) {
        for (const Op op_b : {Op::kN, Op::kT}) {
          const void* const entry = kEntries[row](type, op_a, op_b);
          if (entry != nullptr) all.push_back({entry, row});
        }
      }
    }
  }
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
    all.push_back({SumPartsEntry(type), kSumPartsKernel});
  }
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const int vectors : {1, 2, kMostVectors}) {
      for (const bool matrix : {false, true}) {
        for (const bool of_vectors : {false, true}) {
          all.push_back({GemvEntry(type, vectors, matrix, of_vectors), RowOfFamily(Family::kGemv)});
        }
      }
    }
  }
  return all;
}

}  // namespace

Status PrepareKernels() {
  ASSIGN_OR_RETURN(const int smem_limit, SmemLimit());
  ASSIGN_OR_RETURN(const bool hopper, IsHopper());
  for (const EntryOfKernel& one : AllEntries(hopper)) {
    if (one.kernel < kKernelRows) {
      RETURN_IF_ERROR(PrepareKernel(one.entry, kKernelTable[one.kernel].config, smem_limit));
      continue;
    }
    RETURN_IF_ERROR(Load(one.entry));
    if (!hopper) continue;  // there are parts on no other device
    RETURN_IF_CUDA_ERROR(
        cudaFuncSetAttribute(one.entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kSmemBytesOfSm / (kLeastSumBlocksPerSm + 1))));
  }
  return OkStatus();
}

StatusOr<std::map<std::string, int>> KernelFunctions() {
  std::map<std::string, int> functions;
  ASSIGN_OR_RETURN(const bool hopper, IsHopper());
  for (const EntryOfKernel& one : AllEntries(hopper)) {
    const char* name = nullptr;
    RETURN_IF_CUDA_ERROR(cudaFuncGetName(&name, one.entry));
    functions.emplace(name, one.kernel);
  }
  return functions;
}

Status Launch(const GemmProblem& problem, const Plan& plan, GemmParams params,
              cudaStream_t stream) {
  const void* entry = kEntries[plan.row](EntryType(problem, plan.row), problem.op_a, problem.op_b);
  if (entry == nullptr) {
    return Internal(std::string(plan.kernel()) + " has no instance for " + ToString(problem));
  }
  return LaunchPrepared(entry, problem, plan, params, stream);
}

Status LaunchEntry(const void* entry, const GemmProblem& problem, const Plan& plan,
                   GemmParams params, cudaStream_t stream) {
  ASSIGN_OR_RETURN(const int smem_limit, SmemLimit());
  RETURN_IF_ERROR(PrepareKernel(entry, kKernelTable[plan.row].config, smem_limit));
  return LaunchPrepared(entry, problem, plan, params, stream);
}

StatusOr<int> ResidentPairs() {
  constexpr int kProbeRow = RowByName("tma_wgmma_128x256x64");  // fills an SM
  const KernelConfig& kernel = kKernelTable[kProbeRow].config;
  const void* entry = kEntries[kProbeRow](DType::kBF16, Op::kN, Op::kN);
  RETURN_IF_ERROR(PrepareKernel(entry, kernel, kHopperSmemBytes));
  cudaLaunchAttribute attribute = PairAttribute();
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2);
  config.blockDim = dim3(static_cast<unsigned>(Threads(kernel)));
  config.dynamicSmemBytes = static_cast<size_t>(SmemBytes(kernel, kernel.max_stages));
  config.attrs = &attribute;
  config.numAttrs = 1;
  int pairs = 0;
  RETURN_IF_CUDA_ERROR(cudaOccupancyMaxActiveClusters(&pairs, entry, &config));
  return pairs;
}

StatusOr<cudaFuncAttributes> KernelAttributes(int row, DType type, Op op_a, Op op_b) {
  const void* entry = kEntries[row](type, op_a, op_b);
  if (entry == nullptr) return NotFound("no instance");
  cudaFuncAttributes attributes{};
  RETURN_IF_CUDA_ERROR(cudaFuncGetAttributes(&attributes, entry));
  return attributes;
}

StatusOr<int> DriverResidentBlocks(int row, int stages, DType type, Op op_a, Op op_b) {
  const KernelConfig& config = kKernelTable[row].config;
  const void* entry = kEntries[row](type, op_a, op_b);
  if (entry == nullptr) return NotFound("no instance");
  int blocks = 0;
  RETURN_IF_CUDA_ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, entry, Threads(config), static_cast<size_t>(SmemBytes(config, stages))));
  return blocks;
}

}  // namespace gemmd
