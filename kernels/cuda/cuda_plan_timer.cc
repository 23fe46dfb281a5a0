#include "kernels/cuda/cuda_plan_timer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_image.h"
#include "kernels/cuda/image_params.h"
#include "kernels/cuda/launcher.h"
#include "kernels/cuda/measure.h"
#include "kernels/cuda/random_pattern.h"
#include "kernels/plan/kernel_config.h"

namespace gemmd {
namespace {

constexpr int64_t kMemoryLimitBytes = int64_t{8} << 30;  // where one set is not more
constexpr int64_t kMaxSets = 512;
constexpr int64_t kSetShift = 1000003;  // elements between the starts of two fills

class CudaPlanTimer : public PlanTimer {
 public:
  CudaPlanTimer(const GemmProblem& problem, const DeviceTraits& traits)
      : problem_(problem), traits_(traits) {}

  // Sets of operands until launches no longer meet their own data in the L2 cache.
  Status Allocate() {
    RETURN_IF_CUDA_ERROR(cudaSetDevice(traits_.ordinal));
    ASSIGN_OR_RETURN(image_, ImageOf(problem_));
    const int64_t wanted =
        std::clamp<int64_t>(3 * traits_.l2_bytes / image_.bytes + 1, 2, kMaxSets);
    sets_ = static_cast<int>(std::clamp<int64_t>(kMemoryLimitBytes / image_.bytes, 1, wanted));
    const int64_t bytes = image_.bytes * sets_ + kWorkspaceBytes;
    StatusOr<DeviceBuffer> memory = MakeDeviceBuffer(bytes);
    if (!memory.ok()) {
      return ResourceExhausted(ToString(problem_) + " needs " + std::to_string(bytes) +
                               " bytes of device memory to be timed: " + memory.status().message());
    }
    memory_ = *std::move(memory);
    return OkStatus();
  }

  Status Fill() {
    // A and B, then C and the bias where there are any. Rows' padding has values like the rest.
    const int64_t ab_end = problem_.reads_c() ? image_.c.offset : image_.bias_offset;
    RETURN_IF_ERROR(FillRanges(problem_.type_a, 0, ab_end));
    if (problem_.reads_c() || problem_.bias_length() > 0) {
      RETURN_IF_ERROR(FillRanges(problem_.type_d, ab_end, image_.counters_offset));
    }
    return OkStatus();
  }

  StatusOr<std::vector<PlanTiming>> Time(std::span<const Plan> plans, const TimingOptions& options,
                                         std::stop_token stop) override {
    RETURN_IF_CUDA_ERROR(cudaSetDevice(traits_.ordinal));
    std::vector<Enqueue> variants;
    for (const Plan& plan : plans) {
      variants.push_back([this, &plan](int index, cudaStream_t stream) {
        GemmParams params = Params(index);
        params.counters = nullptr;
        return Launch(problem_, plan, params, stream);
      });
    }
    ASSIGN_OR_RETURN(std::vector<PlanTiming> timings,
                     MeasureInterleaved(variants, options, std::max(kFewLaunches, sets_), stop));
    for (size_t i = 0; options.stalls && i < plans.size(); ++i) {
      ASSIGN_OR_RETURN(timings[i].stalls, MeasureStalls(problem_, plans[i], Params(0), traits_));
    }
    return timings;
  }

 private:
  std::byte* Base(int set) const {
    return static_cast<std::byte*>(memory_.get()) + set * image_.bytes;
  }

  // From one offset to the other of every set.
  Status FillRanges(DType type, int64_t from, int64_t to) const {
    ASSIGN_OR_RETURN(const RandomPattern pattern,
                     RandomPattern::Create(type, kPatternSeed, kPatternElements));
    for (int set = 0; set < sets_; ++set) {
      RETURN_IF_ERROR(pattern.Fill(Base(set) + from, (to - from) / SizeOf(type), set * kSetShift));
    }
    // The pattern goes when this returns.
    return CudaStatus(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  GemmParams Params(int index) const {
    GemmParams params = ParamsFor(image_, Base(index % sets_));
    params.workspace = Base(sets_);  // behind the sets
    return params;
  }

  const GemmProblem problem_;
  const DeviceTraits traits_;
  DeviceImage image_;
  int sets_ = 0;
  DeviceBuffer memory_;
};

}  // namespace

StatusOr<std::unique_ptr<PlanTimer>> MakeCudaPlanTimer(const GemmProblem& problem,
                                                       const DeviceTraits& traits) {
  auto timer = std::make_unique<CudaPlanTimer>(problem, traits);
  RETURN_IF_ERROR(timer->Allocate());
  RETURN_IF_ERROR(timer->Fill());
  return std::unique_ptr<PlanTimer>(std::move(timer));
}

}  // namespace gemmd
