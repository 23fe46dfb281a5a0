#include "kernels/cuda/calibration.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/calibrate_kernels.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/random_pattern.h"
#include "kernels/cuda/tensor_map.h"

namespace gemmd {
namespace {

constexpr int kCpAsyncStages = 8;
// Of a launch: enough that its start and end are no part of a step worth telling.
constexpr int kLoadSteps = 8192;
constexpr int kMultiplySteps = 4096;

// Panels of both rings: each SM has its own at first, unless all of them would not stay in the L2
// cache, of which other things have their share.
constexpr int64_t kPanelsUnitBytes = int64_t{kLoadTmaPanelBytes} * 3;  // whole panels of either
static_assert(kPanelsUnitBytes % kLoadCpAsyncPanelBytes == 0);
constexpr int64_t kBytesOfSm = 4 * kPanelsUnitBytes;
constexpr int64_t kShareOfL2 = 4;

constexpr int kBoxRowElements = 64;  // of 16 bits: 128 bytes

int64_t PanelsBytes(const DeviceTraits& traits) {
  const int64_t wanted = kBytesOfSm * traits.sm_count;
  const int64_t bytes = std::min(wanted, traits.l2_bytes / kShareOfL2);
  return std::max(bytes / kPanelsUnitBytes, int64_t{1}) * kPanelsUnitBytes;
}

// What is timed, one after another: its launches and where its time goes.
class Variants {
 public:
  explicit Variants(int sms) : sms_(static_cast<unsigned>(sms)) {}

  // The time of a step goes into *seconds. Params is copied.
  template <typename Params>
  Status Add(const void* entry, int threads, int64_t smem_bytes, const Params& params,
             double* seconds) {
    RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(smem_bytes)));
    enqueues_.push_back([=, sms = sms_](int, cudaStream_t stream) {
      Params launched = params;
      void* arguments[] = {&launched};
      return CudaStatus(cudaLaunchKernel(entry, dim3(sms), dim3(static_cast<unsigned>(threads)),
                                         arguments, static_cast<size_t>(smem_bytes), stream),
                        "cudaLaunchKernel");
    });
    results_.push_back({seconds, params.steps});
    return OkStatus();
  }

  Status Measure(int rounds, const std::stop_token& stop) const {
    const TimingOptions options = {
        .rounds = rounds, .sample_seconds = 3e-3, .hopeless = 0, .stalls = false};
    ASSIGN_OR_RETURN(const std::vector<PlanTiming> timings,
                     MeasureInterleaved(enqueues_, options, /*min_launches=*/1, stop));
    for (size_t i = 0; i < timings.size(); ++i) {
      *results_[i].seconds = timings[i].median_seconds / results_[i].steps;
    }
    return OkStatus();
  }

 private:
  struct Result {
    double* seconds;
    int steps;
  };

  const unsigned sms_;
  std::vector<Enqueue> enqueues_;
  std::vector<Result> results_;
};

// Load-only rings of 1 stage to as many as `samples` has places for. The shared memory of the most
// stages comes last, and is what the kernel may have from then on.
Status AddLoads(const void* entry, int threads, int64_t fixed_bytes, LoadParams params,
                RingSamples* samples, Variants* variants) {
  for (size_t i = 0; i < samples->step_seconds.size(); ++i) {
    params.stages = static_cast<int>(i) + 1;
    RETURN_IF_ERROR(variants->Add(entry, threads, fixed_bytes + params.stages * samples->step_bytes,
                                  params, &samples->step_seconds[i]));
  }
  return OkStatus();
}

RingSamples PlacesFor(int stages, int64_t step_bytes) {
  return {.step_bytes = step_bytes,
          .step_seconds = std::vector<double>(static_cast<size_t>(stages)),
          .flops_per_second = 0};
}

}  // namespace

StatusOr<CalibrationSamples> MeasureCalibration(const DeviceTraits& traits, int rounds,
                                                const std::stop_token& stop) {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(traits.ordinal));
  const int64_t bytes = PanelsBytes(traits);
  ASSIGN_OR_RETURN(const DeviceBuffer panels, MakeDeviceBuffer(bytes));
  ASSIGN_OR_RETURN(const RandomPattern pattern,
                   RandomPattern::Create(DType::kBF16, kPatternSeed, kPatternElements));
  RETURN_IF_ERROR(pattern.Fill(static_cast<std::byte*>(panels.get()), bytes / 2, 0));
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));

  CalibrationSamples samples;
  Variants variants(traits.sm_count);
  LoadParams load{};
  load.data = panels.get();
  load.steps = kLoadSteps;
  MultiplyParams multiply;
  multiply.steps = kMultiplySteps;

  samples.cp_async = PlacesFor(kCpAsyncStages, kLoadCpAsyncPanelBytes);
  load.panels = static_cast<int>(bytes / kLoadCpAsyncPanelBytes);
  RETURN_IF_ERROR(
      AddLoads(LoadCpAsyncEntry(), kLoadCpAsyncThreads, 0, load, &samples.cp_async, &variants));
  double mma_seconds = 0, wgmma_seconds = 0;
  RETURN_IF_ERROR(variants.Add(MultiplyMmaEntry(), kMultiplyMmaThreads, 0, multiply, &mma_seconds));
  if (traits.compute_capability == 90) {
    const int64_t rows = bytes / (2 * kBoxRowElements);
    ASSIGN_OR_RETURN(load.map, MakeTensorMap({.base = panels.get(),
                                              .type = DType::kBF16,
                                              .rows = rows,
                                              .cols = kBoxRowElements,
                                              .matrices = 1,
                                              .ld = kBoxRowElements,
                                              .matrix_stride = rows * kBoxRowElements,
                                              .box_rows = kLoadTmaBoxRows}));
    samples.tma = PlacesFor(kLoadTmaMaxStages, kLoadTmaPanelBytes);
    load.panels = static_cast<int>(bytes / kLoadTmaPanelBytes);
    RETURN_IF_ERROR(AddLoads(LoadTmaEntry(), kLoadTmaThreads, kLoadTmaBarrierBytes, load,
                             &*samples.tma, &variants));
    RETURN_IF_ERROR(variants.Add(MultiplyWgmmaEntry(), kMultiplyWgmmaThreads,
                                 kMultiplyWgmmaSmemBytes, multiply, &wgmma_seconds));
  }
  RETURN_IF_ERROR(variants.Measure(rounds, stop));
  samples.cp_async.flops_per_second = kMultiplyMmaFlopsPerStep / mma_seconds;
  if (samples.tma) samples.tma->flops_per_second = kMultiplyWgmmaFlopsPerStep / wgmma_seconds;
  return samples;
}

StatusOr<Calibration> FitCalibration(const CalibrationSamples& samples,
                                     const DeviceTraits& traits) {
  Calibration calibration;
  ASSIGN_OR_RETURN(calibration.cp_async, FitRing("cp_async", samples.cp_async, traits.clock_hz));
  if (samples.tma) {
    ASSIGN_OR_RETURN(calibration.tma, FitRing("tma", *samples.tma, traits.clock_hz));
  }
  RETURN_IF_ERROR(CheckCalibration(calibration, traits.compute_capability));
  return calibration;
}

}  // namespace gemmd
