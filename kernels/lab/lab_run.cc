#include "kernels/lab/lab_run.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "kernels/core/quantile.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_probe.h"
#include "kernels/cuda/tensor_map.h"

namespace gemmd::lab {
namespace {

constexpr int kMaxBlocks = 1 << 20;
constexpr int kMaxSteps = 1 << 18;
constexpr int kFillBlocks = 1024;

Status CheckRange(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return OkStatus();
  return InvalidArgument(name, std::string(name) + "=" + std::to_string(value) + " is not from " +
                                   std::to_string(least) + " to " + std::to_string(most));
}

int64_t SmemOf(const Launch& launch) {
  return kFixedBytes + int64_t{launch.stages} * launch.stage_bytes;
}

double MedianPerStep(const std::vector<BlockReport>& reports, uint32_t BlockReport::*figure,
                     int steps) {
  std::vector<double> values;
  for (const BlockReport& report : reports) values.push_back(report.*figure);
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return Quantile(values, 0.5) / steps;
}

template <typename T>
Status CopyBack(const DeviceBuffer& from, size_t count, std::vector<T>* to) {
  to->resize(count);
  return CudaStatus(cudaMemcpy(to->data(), from.get(), count * sizeof(T), cudaMemcpyDeviceToHost),
                    "cudaMemcpy of results");
}

}  // namespace

double Outcome::ClocksPerStep(int steps) const {
  return MedianPerStep(reports, &BlockReport::clocks, steps);
}
double Outcome::ReadyClocksPerStep(int steps) const {
  return MedianPerStep(reports, &BlockReport::wait_ready, steps);
}

StatusOr<LabDevice> LabDevice::Create(int ordinal, const ArrayShape& shape) {
  ASSIGN_OR_RETURN(DeviceTraits traits, ProbeCudaDevice(ordinal));
  LabDevice device(std::move(traits), shape);
  RETURN_IF_CUDA_ERROR(cudaSetDevice(ordinal));
  ASSIGN_OR_RETURN(device.stream_, MakeStream());
  ASSIGN_OR_RETURN(device.start_, MakeEvent());
  ASSIGN_OR_RETURN(device.stop_, MakeEvent());
  ASSIGN_OR_RETURN(device.array_, MakeDeviceBuffer(shape.words() * 4));
  if (device.Has(Mechanism::kTma)) {
    // Words are copied as they are: to the copy engine they are numbers of 4 bytes.
    ASSIGN_OR_RETURN(device.map_, MakeTensorMap({.base = device.array_.get(),
                                                 .type = DType::kF32,
                                                 .rows = shape.rows(),
                                                 .cols = shape.cols(),
                                                 .matrices = 1,
                                                 .ld = shape.cols(),
                                                 .matrix_stride = shape.words(),
                                                 .box_rows = kPanelRows}));
  }
  return device;
}

std::vector<Mechanism> LabDevice::mechanisms() const {
  std::vector<Mechanism> all = {Mechanism::kCpAsync};
  if (Has(Mechanism::kTma)) all.push_back(Mechanism::kTma);
  return all;
}

Status LabDevice::Fill(uint32_t seed) {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(traits_.ordinal));
  FillParams params{.array = static_cast<uint32_t*>(array_.get()),
                    .words = static_cast<uint32_t>(shape_.words()),
                    .seed = seed};
  void* arguments[] = {&params};
  return CudaStatus(cudaLaunchKernel(FillEntry(), dim3(kFillBlocks), dim3(kFillThreads), arguments,
                                     0, stream_.get()),
                    "cudaLaunchKernel of the fill");
}

Status LabDevice::Check(const Launch& launch) const {
  if (!Has(launch.mechanism)) {
    return Unimplemented("tma needs compute capability 9.0; " + traits_.name + " has " +
                         std::to_string(traits_.compute_capability / 10) + "." +
                         std::to_string(traits_.compute_capability % 10));
  }
  RETURN_IF_ERROR(CheckRange("blocks", launch.blocks, 1, kMaxBlocks));
  RETURN_IF_ERROR(CheckRange("steps", launch.steps, 1, kMaxSteps));
  RETURN_IF_ERROR(CheckRange("panels", launch.panels, 1, shape_.panels));
  RETURN_IF_ERROR(CheckRange("stages", launch.stages, 1, kMaxStages));
  RETURN_IF_ERROR(CheckRange("work", launch.work, 0, kMaxWork));
  RETURN_IF_ERROR(CheckRange("trace_blocks", launch.trace_blocks, 0, launch.blocks));
  const int64_t most = (traits_.smem_per_block_bytes - kFixedBytes) / launch.stages / 1024 * 1024;
  RETURN_IF_ERROR(CheckRange("stage_bytes", launch.stage_bytes, kPanelBytes, most));
  if (launch.stage_bytes % 1024 != 0) {
    return InvalidArgument("stage_bytes", "stage_bytes=" + std::to_string(launch.stage_bytes) +
                                              " is not a multiple of 1024");
  }
  // A block's clocks are counted in 32 bits.
  constexpr int64_t kMostClocks = int64_t{1} << 31, kClocksOfRound = 32, kClocksOfStep = 4096;
  const int64_t clocks = launch.steps * (int64_t{launch.load_clocks} + launch.delay_clocks +
                                         launch.work * kClocksOfRound + kClocksOfStep);
  RETURN_IF_ERROR(CheckRange("clocks of all steps", clocks, 0, kMostClocks));
  if (launch.trace_blocks > 0 && launch.fault != Fault::kNone) {
    return InvalidArgument("trace_blocks", "a ring without one of its edges cannot be traced");
  }
  return OkStatus();
}

StatusOr<const void*> LabDevice::Prepare(const Launch& launch) const {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(traits_.ordinal));
  const bool traced = launch.trace_blocks > 0;
  const void* const entry = launch.mechanism == Mechanism::kTma
                                ? TmaEntry(launch.fault, traced)
                                : CpAsyncEntry(launch.fault, traced);
  RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(SmemOf(launch))));
  RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(entry, cudaFuncAttributePreferredSharedMemoryCarveout,
                                            cudaSharedmemCarveoutMaxShared));
  return entry;
}

Status LabDevice::Reserve(int64_t bytes, int64_t* held, DeviceBuffer* buffer) {
  if (bytes <= *held) return OkStatus();
  *held = 0;
  *buffer = DeviceBuffer();
  ASSIGN_OR_RETURN(*buffer, MakeDeviceBuffer(bytes));
  *held = bytes;
  return OkStatus();
}

StatusOr<Outcome> LabDevice::Run(const Launch& launch) {
  RETURN_IF_ERROR(Check(launch));
  ASSIGN_OR_RETURN(const void* const entry, Prepare(launch));
  const int64_t sums = launch.wants_sums ? int64_t{launch.blocks} * launch.steps * kWarps : 0;
  const int64_t trace = launch.trace_blocks * TraceWords(launch.steps);
  RETURN_IF_ERROR(Reserve(launch.blocks * static_cast<int64_t>(sizeof(BlockReport)), &report_bytes_,
                          &reports_));
  RETURN_IF_ERROR(Reserve(sums * 4, &sum_bytes_, &sums_));
  RETURN_IF_ERROR(Reserve(trace * 4, &trace_bytes_, &trace_));
  // A sum that nobody wrote must not look right.
  if (sums > 0) {
    RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(sums_.get(), 0xa5, static_cast<size_t>(sums) * 4, stream_.get()));
  }
  if (trace > 0) {
    RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(trace_.get(), 0, static_cast<size_t>(trace) * 4, stream_.get()));
  }
  LabParams params{};
  static_cast<RingSettings&>(params) = launch;
  params.map = map_;
  params.array = static_cast<const uint32_t*>(array_.get());
  params.ld = shape_.cols();
  params.strips = shape_.strips;
  params.sums = sums > 0 ? static_cast<uint32_t*>(sums_.get()) : nullptr;
  params.trace = trace > 0 ? static_cast<uint32_t*>(trace_.get()) : nullptr;
  params.reports = static_cast<BlockReport*>(reports_.get());
  void* arguments[] = {&params};
  RETURN_IF_CUDA_ERROR(cudaEventRecord(start_.get(), stream_.get()));
  RETURN_IF_CUDA_ERROR(cudaLaunchKernel(entry, dim3(static_cast<unsigned>(launch.blocks)),
                                        dim3(kThreads), arguments,
                                        static_cast<size_t>(SmemOf(launch)), stream_.get()));
  RETURN_IF_CUDA_ERROR(cudaEventRecord(stop_.get(), stream_.get()));
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
  float milliseconds = 0;
  RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()));
  Outcome outcome;
  outcome.seconds = milliseconds * 1e-3;
  RETURN_IF_ERROR(CopyBack(reports_, static_cast<size_t>(launch.blocks), &outcome.reports));
  if (sums > 0) RETURN_IF_ERROR(CopyBack(sums_, static_cast<size_t>(sums), &outcome.sums));
  if (trace > 0) RETURN_IF_ERROR(CopyBack(trace_, static_cast<size_t>(trace), &outcome.trace));
  return outcome;
}

StatusOr<int> LabDevice::DriverResidentBlocks(const Launch& launch) {
  RETURN_IF_ERROR(Check(launch));
  ASSIGN_OR_RETURN(const void* const entry, Prepare(launch));
  int blocks = 0;
  RETURN_IF_CUDA_ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, entry, kThreads, static_cast<size_t>(SmemOf(launch))));
  return blocks;
}

}  // namespace gemmd::lab
