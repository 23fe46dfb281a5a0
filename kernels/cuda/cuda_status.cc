#include "kernels/cuda/cuda_status.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace gemmd {
namespace {

StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return StatusCode::kResourceExhausted;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion: return StatusCode::kUnimplemented;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorStubLibrary: return StatusCode::kUnavailable;
    default: return IsSticky(error) ? StatusCode::kUnavailable : StatusCode::kInternal;
  }
}

}  // namespace

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice:
    case cudaErrorContained: return true;
    default: return false;
  }
}

Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return OkStatus();
  (void)cudaGetLastError();
  return {CodeOf(error),
          std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error)};
}

void CheckCuda(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gemmd: fatal: %s\n", CudaStatus(error, what).ToString().c_str());
  std::abort();
}

void IgnoreAtShutdown(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace gemmd
