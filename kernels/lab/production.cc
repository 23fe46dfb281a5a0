#include "kernels/lab/production.h"

#include <cstddef>
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

}  // namespace

std::vector<int> TracedRows(const DeviceTraits& traits) {
  std::vector<int> rows;
  for (int row = 0; row < kKernelRows; ++row) {
    const bool tma = kKernelTable[row].config.family == Family::kTmaWgmma;
    if ((!tma || traits.compute_capability == 90) && TracedEntry(row) != nullptr) {
      rows.push_back(row);
    }
  }
  return rows;
}

StatusOr<Picture> TraceProduct(const DeviceTraits& traits, int row, int stages, int64_t m,
                               int64_t n, int64_t k) {
  const GemmProblem problem = ProblemOf(m, n, k);
  RETURN_IF_ERROR(ValidateProblem(problem));
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(traits, problem, row, stages));
  RETURN_IF_CUDA_ERROR(cudaSetDevice(traits.ordinal));
  ASSIGN_OR_RETURN(const DeviceImage image, ImageOf(problem));
  ASSIGN_OR_RETURN(const DeviceBuffer memory, MakeDeviceBuffer(image.bytes));
  ASSIGN_OR_RETURN(const DeviceBuffer trace, MakeDeviceBuffer(kTraceBytes));
  auto* const base = static_cast<std::byte*>(memory.get());
  ASSIGN_OR_RETURN(const RandomPattern pattern,
                   RandomPattern::Create(DType::kBF16, kPatternSeed, kPatternElements));
  RETURN_IF_ERROR(pattern.Fill(base, image.bias_offset / 2, 0));
  GemmParams params = ParamsFor(image, base);
  params.counters = static_cast<unsigned long long*>(trace.get());
  for (int launch = 0; launch < 2; ++launch) {  // the first loads the kernel
    RETURN_IF_CUDA_ERROR(cudaMemset(trace.get(), 0, kTraceBytes));
    RETURN_IF_ERROR(LaunchEntry(TracedEntry(row), problem, plan, params, nullptr));
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
  }
  std::vector<WarpWaits> waits(kTracedWarps);
  RETURN_IF_CUDA_ERROR(cudaMemcpy(waits.data(), static_cast<std::byte*>(trace.get()) + kStallBytes,
                                  sizeof(WarpWaits) * kTracedWarps, cudaMemcpyDeviceToHost));
  const KernelConfig& config = kKernelTable[row].config;
  return PictureOfWaits(
      waits.data(),
      {.name = std::string(kKernelTable[row].name) + ", S = " + std::to_string(stages),
       .stages = stages,
       .k_tiles = static_cast<int>((k + config.block_k - 1) / config.block_k),
       .producer = config.family == Family::kTmaWgmma,
       .in_turn = config.ping_pong});
}

}  // namespace gemmd::lab
