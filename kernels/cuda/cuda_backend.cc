#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/arena.h"
#include "kernels/core/mutex.h"
#include "kernels/cuda/calibration.h"
#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/cuda_plan_timer.h"
#include "kernels/cuda/cupti_sampler.h"
#include "kernels/cuda/device_image.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/launcher.h"

namespace gemmd {
namespace {

class CudaBackend : public Backend {
 public:
  CudaBackend(DeviceTraits traits, DeviceBuffer device, PinnedBuffer pinned,
              const CudaBackendOptions& options)
      : traits_(std::move(traits)),
        device_(std::move(device)),
        pinned_(std::move(pinned)),
        device_arena_(options.device_pool_bytes),
        pinned_arena_(options.pinned_pool_bytes) {}

  void SetSampler(StatusOr<std::unique_ptr<PcSampler>> sampler) { sampler_ = std::move(sampler); }

  Status AddLanes(int count) {
    MutexLock lock(mu_);
    for (int index = 0; index < count; ++index) {
      ASSIGN_OR_RETURN(
          std::unique_ptr<CudaLane> lane,
          CudaLane::Create(index, traits_, [this](cudaError_t error) { NoteError(error); }));
      free_.push_back(lane.get());
      lanes_.push_back(std::move(lane));
    }
    return OkStatus();
  }

  std::string_view name() const override { return "cuda"; }
  const DeviceTraits& traits() const override { return traits_; }

  Status CheckFits(const GemmProblem& problem) const override {
    ASSIGN_OR_RETURN(const DeviceImage image, ImageOf(problem));
    MutexLock lock(mu_);
    const auto refuse = [&](const char* pool, int64_t limit) {
      return ResourceExhausted(ToString(problem) + " needs " + std::to_string(image.bytes) +
                               " bytes of " + pool + " memory, above the pool's limit " +
                               std::to_string(limit));
    };
    if (image.bytes > device_arena_.capacity()) {
      return refuse("device", device_arena_.capacity());
    }
    if (image.bytes > pinned_arena_.capacity()) {
      return refuse("pinned", pinned_arena_.capacity());
    }
    return OkStatus();
  }

  std::optional<LaneLease> TryAcquireLane(const GemmProblem& problem) override {
    const StatusOr<DeviceImage> image = ImageOf(problem);
    if (!image.ok()) return std::nullopt;
    MutexLock lock(mu_);
    if (free_.empty()) return std::nullopt;
    const std::optional<int64_t> device = device_arena_.Allocate(image->bytes);
    if (!device) return std::nullopt;
    const std::optional<int64_t> pinned = pinned_arena_.Allocate(image->bytes);
    if (!pinned) {
      device_arena_.Free(*device);
      return std::nullopt;
    }
    CudaLane* lane = free_.back();
    free_.pop_back();
    blocks_[lane] = {*device, *pinned};
    lane->SetMemory(*image, static_cast<std::byte*>(device_.get()) + *device,
                    static_cast<std::byte*>(pinned_.get()) + *pinned);
    return LaneLease(lane, [this](Lane* held) { Release(held); });
  }

  StatusOr<std::unique_ptr<PlanTimer>> MakePlanTimer(const GemmProblem& problem) override {
    return MakeCudaPlanTimer(problem, traits_);
  }

  StatusOr<Calibration> Calibrate(std::stop_token stop) override {
    ASSIGN_OR_RETURN(const CalibrationSamples samples,
                     MeasureCalibration(traits_, kCalibrationRounds, stop));
    return FitCalibration(samples, traits_);
  }

  PcSampler* sampler() override { return sampler_.ok() ? sampler_->get() : nullptr; }
  Status sampling_status() const override { return sampler_.status(); }

  void SetReleaseListener(std::function<void()> listener) override {
    listener_ = std::move(listener);
  }

  bool healthy() const override { return healthy_.load(std::memory_order_relaxed); }

  BackendUsage usage() const override {
    MutexLock lock(mu_);
    return {.lanes = static_cast<int>(lanes_.size()),
            .lanes_in_use = static_cast<int>(lanes_.size() - free_.size()),
            .device_pool_bytes = device_arena_.capacity(),
            .device_pool_used_bytes = device_arena_.used(),
            .pinned_pool_bytes = pinned_arena_.capacity(),
            .pinned_pool_used_bytes = pinned_arena_.used()};
  }

 private:
  struct Blocks {  // offsets within the arenas
    int64_t device = 0;
    int64_t pinned = 0;
  };

  void Release(Lane* held) {
    auto* lane = static_cast<CudaLane*>(held);
    {
      MutexLock lock(mu_);
      const Blocks blocks = blocks_[lane];
      device_arena_.Free(blocks.device);
      pinned_arena_.Free(blocks.pinned);
      free_.push_back(lane);
    }
    if (listener_) listener_();
  }

  // Relaxed: nothing else is published with the flag.
  void NoteError(cudaError_t error) {
    if (IsSticky(error)) healthy_.store(false, std::memory_order_relaxed);
  }

  const DeviceTraits traits_;
  const DeviceBuffer device_;
  const PinnedBuffer pinned_;
  StatusOr<std::unique_ptr<PcSampler>> sampler_ =
      FailedPrecondition("pc-sampling=off: this server samples no program counters");
  std::function<void()> listener_;  // set once, before the first lease
  std::atomic<bool> healthy_{true};

  mutable Mutex mu_;
  Arena device_arena_ GUARDED_BY(mu_);
  Arena pinned_arena_ GUARDED_BY(mu_);
  std::vector<CudaLane*> free_ GUARDED_BY(mu_);
  std::map<CudaLane*, Blocks> blocks_ GUARDED_BY(mu_);
  std::vector<std::unique_ptr<CudaLane>> lanes_ GUARDED_BY(mu_);  // first to go
};

StatusOr<std::unique_ptr<PcSampler>> MakeSampler(double percent) {
  ASSIGN_OR_RETURN(auto kernels, KernelFunctions());
  return MakeCuptiSampler(std::move(kernels), percent);
}

template <typename T>
StatusOr<T> NamePool(StatusOr<T> buffer, const char* flag, int64_t bytes) {
  if (buffer.ok()) return buffer;
  return Status(buffer.status().code(), std::string(flag) + "=" + std::to_string(bytes) +
                                            " bytes: " + buffer.status().message());
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int ordinal, const CudaBackendOptions& options) {
  ASSIGN_OR_RETURN(DeviceTraits traits, ProbeCudaDevice(ordinal));
  RETURN_IF_CUDA_ERROR(cudaSetDevice(ordinal));
  if (options.pc_sampling_percent > 0) (void)WatchLoadedCode();  // its failure is the sampler's too
  if (Status status = PrepareKernels(); !status.ok()) {
    return Status(status.code(), "device " + std::to_string(ordinal) + " (" + traits.name +
                                     ") cannot run this build's kernels: " + status.message());
  }
  ASSIGN_OR_RETURN(DeviceBuffer device, NamePool(MakeDeviceBuffer(options.device_pool_bytes),
                                                 "device_pool", options.device_pool_bytes));
  ASSIGN_OR_RETURN(PinnedBuffer pinned, NamePool(MakePinnedBuffer(options.pinned_pool_bytes),
                                                 "pinned_pool", options.pinned_pool_bytes));
  auto backend = std::make_unique<CudaBackend>(std::move(traits), std::move(device),
                                               std::move(pinned), options);
  RETURN_IF_ERROR(backend->AddLanes(options.lanes));
  if (options.pc_sampling_percent > 0) {
    backend->SetSampler(MakeSampler(options.pc_sampling_percent));
  }
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace gemmd
