// Owners of CUDA's raw handles: move-only, destroyed where they were made. The only place where the
// raw ones are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <cuda_runtime_api.h>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"

namespace gemmd {

// Handle: a raw CUDA handle; kDestroy: what frees it.
template <typename Handle, cudaError_t (*kDestroy)(Handle)>
class CudaOwner {
 public:
  CudaOwner() = default;
  explicit CudaOwner(Handle handle) : handle_(handle) {}
  CudaOwner(CudaOwner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaOwner& operator=(CudaOwner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaOwner() {
    if (handle_ != nullptr) IgnoreAtShutdown(kDestroy(handle_));
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using Stream = CudaOwner<cudaStream_t, &cudaStreamDestroy>;
using Event = CudaOwner<cudaEvent_t, &cudaEventDestroy>;
using DeviceBuffer = CudaOwner<void*, &cudaFree>;
using PinnedBuffer = CudaOwner<void*, &cudaFreeHost>;

// All on the current device.
inline StatusOr<Stream> MakeStream() {
  cudaStream_t stream = nullptr;
  RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}
// Timed; waiting on it sleeps instead of spinning.
inline StatusOr<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(&event, cudaEventBlockingSync));
  return Event(event);
}
inline StatusOr<DeviceBuffer> MakeDeviceBuffer(int64_t bytes) {
  void* memory = nullptr;
  RETURN_IF_CUDA_ERROR(cudaMalloc(&memory, static_cast<size_t>(bytes)));
  return DeviceBuffer(memory);
}
inline StatusOr<PinnedBuffer> MakePinnedBuffer(int64_t bytes) {
  void* memory = nullptr;
  RETURN_IF_CUDA_ERROR(cudaMallocHost(&memory, static_cast<size_t>(bytes)));
  return PinnedBuffer(memory);
}

}  // namespace gemmd
