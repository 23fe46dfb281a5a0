// One lane of a CUDA device: a stream, the events that time it, and a thread that waits for it.
//
// Submit runs on the caller's thread: it copies the operands into staging memory and enqueues copy
// down, kernel, copy up. The lane's thread waits for the last of these, copies D out and reports. A
// thread of its own means that no lane's completion waits behind another's, and that an error
// reaches whoever waits for it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include <cuda_runtime_api.h>

#include "kernels/backend.h"
#include "kernels/core/mutex.h"
#include "kernels/cuda/device_image.h"
#include "kernels/cuda/handles.h"

namespace gemmd {

class CudaLane : public Lane {
 public:
  // Sees every CUDA error of the lane, from the thread that met it.
  using ErrorListener = std::function<void(cudaError_t)>;

  static StatusOr<std::unique_ptr<CudaLane>> Create(int index, const DeviceTraits& traits,
                                                    ErrorListener listener);
  ~CudaLane() override;

  // Memory for the next Submit: `image.bytes` at each address. Called by the lease's holder, before
  // Submit; the memory stays in use until the lease ends.
  void SetMemory(const DeviceImage& image, std::byte* device, std::byte* pinned);

  int index() const override { return index_; }
  // Ignores `stop`: what is enqueued on a stream cannot be taken back.
  Status Submit(const GemmProblem& problem, const Plan& plan, const HostOperands& operands,
                Done done, std::stop_token stop) override;

 private:
  struct Job {  // enqueued on the stream, not reported yet
    GemmProblem problem;
    Plan plan;
    HostOperands operands;
    Done done;
    Nanoseconds stage{0};
  };
  struct Events {
    Event begin, uploaded, computed, downloaded;
  };

  CudaLane(int index, DeviceTraits traits, ErrorListener listener, Stream stream, Events events,
           DeviceBuffer workspace);

  // Everything of a launch but the host copies. The first error wins.
  Status Enqueue(const GemmProblem& problem, const Plan& plan);
  Status Check(cudaError_t error, const char* what);
  void CompletionLoop();  // the lane's thread
  LaneResult Complete(const Job& job);
  Status ReadTimes(PhaseTimes& times);

  const int index_;
  const DeviceTraits traits_;
  const ErrorListener listener_;
  const Stream stream_;
  const Events events_;
  const DeviceBuffer workspace_;  // where the parts of this lane's products meet

  // Written by the lease's holder before Submit, read by the lane's thread after it.
  DeviceImage image_;
  std::byte* device_ = nullptr;
  std::byte* pinned_ = nullptr;

  Mutex mu_;
  CondVar work_;
  std::optional<Job> job_ GUARDED_BY(mu_);
  bool stop_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gemmd
