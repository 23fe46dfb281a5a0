#include "kernels/cuda/cuda_lane.h"

#include <chrono>
#include <utility>

#include "kernels/cuda/image_params.h"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/stall_record.h"

namespace gemmd {
namespace {

using SteadyClock = std::chrono::steady_clock;

// A short product ends before a sleeping thread could be woken, so the lane polls this long first.
constexpr auto kPollTime = std::chrono::microseconds(100);

cudaError_t WaitFor(cudaEvent_t event) {
  const auto until = SteadyClock::now() + kPollTime;
  while (SteadyClock::now() < until) {
    const cudaError_t error = cudaEventQuery(event);
    if (error != cudaErrorNotReady) return error;
    std::this_thread::yield();
  }
  return cudaEventSynchronize(event);
}

}  // namespace

StatusOr<std::unique_ptr<CudaLane>> CudaLane::Create(int index, const DeviceTraits& traits,
                                                     ErrorListener listener) {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(traits.ordinal));
  ASSIGN_OR_RETURN(Stream stream, MakeStream());
  Events events;
  for (Event* event : {&events.begin, &events.uploaded, &events.computed, &events.downloaded}) {
    ASSIGN_OR_RETURN(*event, MakeEvent());
  }
  ASSIGN_OR_RETURN(DeviceBuffer workspace, MakeDeviceBuffer(kWorkspaceBytes));
  return std::unique_ptr<CudaLane>(new CudaLane(index, traits, std::move(listener),
                                                std::move(stream), std::move(events),
                                                std::move(workspace)));
}

CudaLane::CudaLane(int index, DeviceTraits traits, ErrorListener listener, Stream stream,
                   Events events, DeviceBuffer workspace)
    : index_(index),
      traits_(std::move(traits)),
      listener_(std::move(listener)),
      stream_(std::move(stream)),
      events_(std::move(events)),
      workspace_(std::move(workspace)),
      thread_([this] { CompletionLoop(); }) {}

CudaLane::~CudaLane() {
  {
    MutexLock lock(mu_);
    stop_ = true;
  }
  work_.NotifyAll();
  thread_.join();
}

void CudaLane::SetMemory(const DeviceImage& image, std::byte* device, std::byte* pinned) {
  image_ = image;
  device_ = device;
  pinned_ = pinned;
}

Status CudaLane::Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) listener_(error);
  return CudaStatus(error, what);
}

Status CudaLane::Enqueue(const GemmProblem& problem, const Plan& plan) {
  cudaStream_t stream = stream_.get();
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count); };
  RETURN_IF_ERROR(Check(cudaEventRecord(events_.begin.get(), stream), "record begin"));
  RETURN_IF_ERROR(Check(cudaMemcpyAsync(device_, pinned_, bytes(image_.upload_bytes()),
                                        cudaMemcpyHostToDevice, stream),
                        "copy to device"));
  RETURN_IF_ERROR(Check(cudaEventRecord(events_.uploaded.get(), stream), "record uploaded"));
  if (plan.row >= 0) {  // else an empty product: there is nothing to compute
    GemmParams params = ParamsFor(image_, device_);
    params.workspace = workspace_.get();
    RETURN_IF_ERROR(Launch(problem, plan, params, stream));
  }
  RETURN_IF_ERROR(Check(cudaEventRecord(events_.computed.get(), stream), "record computed"));
  RETURN_IF_ERROR(
      Check(cudaMemcpyAsync(pinned_ + image_.counters_offset, device_ + image_.counters_offset,
                            bytes(image_.download_bytes()), cudaMemcpyDeviceToHost, stream),
            "copy to host"));
  return Check(cudaEventRecord(events_.downloaded.get(), stream), "record downloaded");
}

Status CudaLane::Submit(const GemmProblem& problem, const Plan& plan, const HostOperands& operands,
                        Done done, std::stop_token /*stop*/) {
  RETURN_IF_ERROR(Check(cudaSetDevice(traits_.ordinal), "cudaSetDevice"));
  const auto start = SteadyClock::now();
  FillImage(problem, operands, image_, pinned_);
  const Nanoseconds stage = SteadyClock::now() - start;

  if (Status status = Enqueue(problem, plan); !status.ok()) {
    // What was enqueued before the error still uses the lane's memory.
    (void)Check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    return status;
  }
  {
    MutexLock lock(mu_);
    job_ = Job{problem, plan, operands, std::move(done), stage};
  }
  work_.NotifyOne();
  return OkStatus();
}

void CudaLane::CompletionLoop() {
  (void)Check(cudaSetDevice(traits_.ordinal), "cudaSetDevice");
  while (true) {
    std::optional<Job> job;
    {
      MutexLock lock(mu_);
      while (!job_ && !stop_) work_.Wait(mu_);
      if (!job_) return;
      job = std::exchange(job_, std::nullopt);
    }
    LaneResult result = Complete(*job);
    job->done(std::move(result));
  }
}

LaneResult CudaLane::Complete(const Job& job) {
  LaneResult result;
  result.times.stage = job.stage;
  result.status = Check(WaitFor(events_.downloaded.get()), "waiting for the product");
  if (result.status.ok()) result.status = ReadTimes(result.times);
  if (!result.status.ok()) return result;
  const auto start = SteadyClock::now();
  ReadResult(job.problem, image_, pinned_, job.operands);
  result.times.unstage = SteadyClock::now() - start;
  if (job.plan.stages > 0) {
    result.stalls = JudgeStalls(ReadCounters(pinned_ + image_.counters_offset), job.problem,
                                job.plan, traits_, result.times.kernel);
  }
  return result;
}

Status CudaLane::ReadTimes(PhaseTimes& times) {
  const auto between = [this](const Event& from, const Event& to, Nanoseconds& out) {
    float milliseconds = 0;
    const Status status =
        Check(cudaEventElapsedTime(&milliseconds, from.get(), to.get()), "cudaEventElapsedTime");
    out = Nanoseconds(static_cast<int64_t>(milliseconds * 1e6));
    return status;
  };
  RETURN_IF_ERROR(between(events_.begin, events_.uploaded, times.h2d));
  RETURN_IF_ERROR(between(events_.uploaded, events_.computed, times.kernel));
  return between(events_.computed, events_.downloaded, times.d2h);
}

}  // namespace gemmd
