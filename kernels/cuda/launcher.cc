#include "kernels/cuda/launcher.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/tma_params.h"

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
constexpr int kTmaStoreRows = 64;          // of D's boxes

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

template <typename Params>
Status LaunchKernel(const void* entry, dim3 grid, int threads, Params& params, int64_t smem_bytes,
                    cudaStream_t stream) {
  void* arguments[] = {&params};
  return CudaStatus(cudaLaunchKernel(entry, grid, dim3(static_cast<unsigned>(threads)), arguments,
                                     static_cast<size_t>(smem_bytes), stream),
                    "cudaLaunchKernel");
}

Status LaunchEpilogue(const void* entry, GemmParams& params, cudaStream_t stream) {
  const int64_t items = CeilDiv(params.n, 4) * params.m * params.batch;
  const int64_t blocks = std::min(CeilDiv(items, kEpilogueThreads), kEpilogueBlocks);
  return LaunchKernel(entry, dim3(static_cast<unsigned>(blocks)), kEpilogueThreads, params, 0,
                      stream);
}

// One persistent block an SM, or one a tile where those are fewer.
Status LaunchTma(const void* entry, const GemmProblem& problem, const Plan& plan,
                 const GemmParams& params, cudaStream_t stream) {
  const KernelConfig& config = kKernelTable[plan.row].config;
  const auto map = [&](const void* base, DType type, int64_t rows, int64_t cols, int64_t ld,
                       int64_t stride, int box_rows) {
    return MakeTensorMap({.base = base,
                          .type = type,
                          .rows = rows,
                          .cols = cols,
                          .matrices = stride == 0 ? 1 : problem.batch,
                          .ld = ld,
                          .matrix_stride = stride,
                          .box_rows = box_rows});
  };
  // A box is 128 bytes wide along the stored row: all of the panel's rows where that is K, else the
  // K values of one step.
  const int rows_a = problem.op_a == Op::kN ? config.block_m : config.block_k;
  const int rows_b = problem.op_b == Op::kT ? config.block_n : config.block_k;
  TmaParams tma;
  tma.gemm = params;
  ASSIGN_OR_RETURN(tma.a, map(params.a, problem.type_a, problem.a.rows, problem.a.cols, params.lda,
                              params.stride_a, rows_a));
  ASSIGN_OR_RETURN(tma.b, map(params.b, problem.type_b, problem.b.rows, problem.b.cols, params.ldb,
                              params.stride_b, rows_b));
  ASSIGN_OR_RETURN(tma.d, map(params.d, problem.type_d, problem.m, problem.n, params.ldd,
                              params.stride_d, kTmaStoreRows));
  int device = 0, sms = 0;
  RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  const int64_t tiles = int64_t{params.m_tiles} * params.n_tiles * params.batch;
  return LaunchKernel(entry, dim3(static_cast<unsigned>(std::min<int64_t>(tiles, sms))),
                      Threads(config), tma, plan.smem_bytes, stream);
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

  if (config.family == Family::kEpilogueOnly) return LaunchEpilogue(entry, params, stream);
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
