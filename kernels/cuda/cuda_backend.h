// A CUDA device as a Backend: a fixed pool of lanes, one arena of device memory and one of pinned
// host memory, all taken at start.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "kernels/core/status.h"
#include "kernels/cuda/device_probe.h"

namespace gemmd {

struct CudaBackendOptions {
  int lanes = 4;
  int64_t device_pool_bytes = int64_t{4} << 30;
  int64_t pinned_pool_bytes = int64_t{1} << 30;
  double pc_sampling_percent = 0;  // of the sampler's fullest rate; 0: have none
};

// Errors as ProbeCudaDevice, and RESOURCE_EXHAUSTED naming the pool that does not fit,
// UNIMPLEMENTED when this build has no code for the device.
StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int ordinal, const CudaBackendOptions& options);

}  // namespace gemmd
