#include "kernels/lab/production.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_image.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/image_params.h"
#include "kernels/cuda/launcher.h"
#include "kernels/cuda/random_pattern.h"
#include "kernels/lab/wait_trace.h"
#include "kernels/plan/kernel_table.h"
#include "kernels/plan/planner.h"

namespace gemmd::lab {
namespace {

GemmProblem ProblemOf(int64_t m, int64_t n, int64_t k) {
  GemmProblem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.op_b = Op::kT;
  problem.type_a = problem.type_b = problem.type_d = DType::kBF16;
  return WithPackedLayouts(problem);
}

StatusOr<Plan> PlanOf(const DeviceTraits& traits, const GemmProblem& problem, int row, int stages) {
  const Planner planner(traits);
  for (const Plan& plan :
       planner.Candidates(problem, {.row = row, .stages = stages, .split_k = 1})) {
    if (!plan.pair && plan.stages == stages) return plan;
  }
  return InvalidArgument("stages", std::string(kKernelTable[row].name) + " has no plan of " +
                                       std::to_string(stages) + " stages for " + ToString(problem));
}

// `header` is on the device, and what follows it.
StatusOr<std::vector<Picture>> ReadPictures(const std::byte* header, const TracedProduct& product,
                                            const std::vector<int>& blocks) {
  TraceHeader traced;
  RETURN_IF_CUDA_ERROR(cudaMemcpy(&traced, header, sizeof traced, cudaMemcpyDeviceToHost));
  const KernelConfig& config = kKernelTable[product.row].config;
  const auto waits = std::make_unique<BlockWaits>();
  std::vector<Picture> pictures;
  for (const int block : blocks) {
    if (static_cast<uint32_t>(block) >= traced.grid) {
      return InvalidArgument("block", "block=" + std::to_string(block) + " is not below " +
                                          std::to_string(traced.grid) + ", the launch's blocks");
    }
    const std::byte* const at = header + sizeof traced + sizeof *waits * static_cast<size_t>(block);
    RETURN_IF_CUDA_ERROR(cudaMemcpy(waits.get(), at, sizeof *waits, cudaMemcpyDeviceToHost));
    pictures.push_back(PictureOfWaits(
        waits->warps, {.name = PictureName(kKernelTable[product.row].name, product.stages, block),
                       .stages = product.stages,
                       .k_tiles = static_cast<int>(CeilDiv(product.k, config.block_k)),
                       .producer = config.family == Family::kTmaWgmma,
                       .in_turn = config.ping_pong}));
  }
  return pictures;
}

}  // namespace

std::vector<int> TracedRows() {
  std::vector<int> rows;
  for (int row = 0; row < kKernelRows; ++row) {
    if (TracedEntry(row) != nullptr) rows.push_back(row);
  }
  return rows;
}

std::vector<int> TracedRows(const DeviceTraits& traits) {
  std::vector<int> rows;
  for (const int row : TracedRows()) {
    const bool tma = kKernelTable[row].config.family == Family::kTmaWgmma;
    if (!tma || traits.compute_capability == 90) rows.push_back(row);
  }
  return rows;
}

StatusOr<std::vector<Picture>> TraceProduct(const DeviceTraits& traits,
                                            const TracedProduct& product,
                                            const std::vector<int>& blocks) {
  const GemmProblem problem = ProblemOf(product.m, product.n, product.k);
  RETURN_IF_ERROR(ValidateProblem(problem));
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(traits, problem, product.row, product.stages));
  RETURN_IF_CUDA_ERROR(cudaSetDevice(traits.ordinal));
  ASSIGN_OR_RETURN(const DeviceImage image, ImageOf(problem));
  ASSIGN_OR_RETURN(const DeviceBuffer memory, MakeDeviceBuffer(image.bytes));
  const TraceHeader asked = {
      .blocks = static_cast<uint32_t>(*std::max_element(blocks.begin(), blocks.end())) + 1};
  const size_t trace_bytes = kStallBytes + sizeof asked + asked.blocks * sizeof(BlockWaits);
  ASSIGN_OR_RETURN(const DeviceBuffer trace, MakeDeviceBuffer(static_cast<int64_t>(trace_bytes)));
  std::byte* const header = static_cast<std::byte*>(trace.get()) + kStallBytes;
  auto* const base = static_cast<std::byte*>(memory.get());
  ASSIGN_OR_RETURN(const RandomPattern pattern,
                   RandomPattern::Create(DType::kBF16, kPatternSeed, kPatternElements));
  RETURN_IF_ERROR(pattern.Fill(base, image.bias_offset / 2, 0));
  GemmParams params = ParamsFor(image, base);
  params.counters = static_cast<unsigned long long*>(trace.get());
  for (int launch = 0; launch < 2; ++launch) {  // the first loads the kernel
    RETURN_IF_CUDA_ERROR(cudaMemset(trace.get(), 0, trace_bytes));
    RETURN_IF_CUDA_ERROR(cudaMemcpy(header, &asked, sizeof asked, cudaMemcpyHostToDevice));
    RETURN_IF_ERROR(LaunchEntry(TracedEntry(product.row), problem, plan, params, nullptr));
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
  }
  return ReadPictures(header, product, blocks);
}

}  // namespace gemmd::lab
