// What to do with a cudaError_t: three policies, by where the call stands.
//   RETURN_IF_CUDA_ERROR  on any path that can fail: becomes a Status
//   CheckCuda             a failure would be a bug of ours: ends the process with a message
//   IgnoreAtShutdown      in destructors: the driver may be gone already
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

#include "kernels/core/status.h"

namespace gemmd {

// Clears the runtime's last-error slot. RESOURCE_EXHAUSTED for out of memory, UNIMPLEMENTED where
// the build has no code for the device, UNAVAILABLE for a lost device, else INTERNAL; the message
// holds `what`, the error's name and the driver's words. OK for cudaSuccess.
Status CudaStatus(cudaError_t error, std::string_view what);

// Errors after which every later call of this process fails too.
bool IsSticky(cudaError_t error);

void CheckCuda(cudaError_t error, std::string_view what);
void IgnoreAtShutdown(cudaError_t error);

#define RETURN_IF_CUDA_ERROR(expr) RETURN_IF_ERROR(::gemmd::CudaStatus((expr), #expr))

}  // namespace gemmd
