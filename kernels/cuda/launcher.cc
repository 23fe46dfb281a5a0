#include "kernels/cuda/launcher.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_status.h"

namespace gemmd {

template <>
const void* KernelEntry<RowByName("openblas")>(DType, Op, Op) {
  return nullptr;
}

namespace {

using EntryFn = const void* (*)(DType, Op, Op);

template <size_t... kRows>
constexpr std::array<EntryFn, sizeof...(kRows)> AllEntries(std::index_sequence<kRows...>) {
  return {&KernelEntry<static_cast<int>(kRows)>...};
}
constexpr auto kEntries = AllEntries(std::make_index_sequence<kKernelRows>{});

constexpr int kMaxGridZ = 65535;
constexpr int kEpilogueThreads = 256;
constexpr int64_t kEpilogueBlocks = 4096;  // walks the rest

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

}  // namespace

Status PrepareKernels() {
  int device = 0, smem_limit = 0;
  RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&smem_limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  for (int row = 0; row < kKernelRows; ++row) {
    for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
      for (const Op op_a : {Op::kN, Op::kT}) {
        for (const Op op_b : {Op::kN, Op::kT}) {
          const void* entry = kEntries[row](type, op_a, op_b);
          if (entry == nullptr) continue;
          RETURN_IF_ERROR(PrepareKernel(entry, kKernelTable[row].config, smem_limit));
        }
      }
    }
  }
  return OkStatus();
}

Status Launch(const GemmProblem& problem, const Plan& plan, GemmParams params,
              cudaStream_t stream) {
  const KernelConfig& config = kKernelTable[plan.row].config;
  const void* entry = kEntries[plan.row](EntryType(problem, plan.row), problem.op_a, problem.op_b);
  if (entry == nullptr) {
    return Internal(std::string(plan.kernel()) + " has no instance for " + ToString(problem));
  }
  params.m = static_cast<int>(problem.m);
  params.n = static_cast<int>(problem.n);
  params.k = static_cast<int>(problem.k);
  params.batch = static_cast<int>(problem.batch);
  params.stages = plan.stages;
  params.alpha = static_cast<float>(problem.alpha);
  params.beta = static_cast<float>(problem.beta);
  params.bias_axis = problem.bias;
  params.act = problem.act;
  params.f32_result = problem.type_d == DType::kF32 && problem.type_a != DType::kF32;

  dim3 grid, block;
  if (config.family == Family::kEpilogueOnly) {
    const int64_t items = CeilDiv(problem.n, 4) * problem.m * problem.batch;
    grid.x = static_cast<unsigned>(std::min(CeilDiv(items, kEpilogueThreads), kEpilogueBlocks));
    block.x = kEpilogueThreads;
  } else {
    params.m_tiles = static_cast<int>(CeilDiv(problem.m, config.block_m));
    params.n_tiles = static_cast<int>(CeilDiv(problem.n, config.block_n));
    params.k_tiles = static_cast<int>(CeilDiv(problem.k, config.block_k));
    const int64_t tiles = int64_t{params.m_tiles} * params.n_tiles;
    if (tiles > kMaxExtent) {
      return ResourceExhausted(ToString(problem) + " has " + std::to_string(tiles) +
                               " tiles, above the limit " + std::to_string(kMaxExtent));
    }
    grid.x = static_cast<unsigned>(tiles);
    grid.z = static_cast<unsigned>(std::min(params.batch, kMaxGridZ));
    block.x = static_cast<unsigned>(Threads(config));
  }
  void* arguments[] = {&params};
  return CudaStatus(
      cudaLaunchKernel(entry, grid, block, arguments, static_cast<size_t>(plan.smem_bytes), stream),
      plan.kernel());
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
