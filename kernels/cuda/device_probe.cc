#include "kernels/cuda/device_probe.h"

#include <cstdio>
#include <string>

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/launcher.h"

namespace gemmd {
namespace {

// Measured copies reach this share of the bus's peak on an H200.
constexpr double kReachableBandwidth = 0.88;

StatusOr<int> Attribute(cudaDeviceAttr attribute, int ordinal) {
  int value = 0;
  RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&value, attribute, ordinal));
  return value;
}

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

}  // namespace

StatusOr<int> UsableCudaDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return Unavailable("no usable CUDA device: " +
                       CudaStatus(error, "cudaGetDeviceCount").message());
  }
  if (count == 0) return Unavailable("no usable CUDA device: the driver lists none");
  return count;
}

StatusOr<DeviceTraits> ProbeCudaDevice(int ordinal) {
  ASSIGN_OR_RETURN(const int count, UsableCudaDevices());
  if (ordinal < 0 || ordinal >= count) {
    return InvalidArgument("device", "device=" + std::to_string(ordinal) + " is not one of 0 to " +
                                         std::to_string(count - 1));
  }
  cudaDeviceProp props{};
  RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&props, ordinal));
  ASSIGN_OR_RETURN(const int sm_clock_khz, Attribute(cudaDevAttrClockRate, ordinal));
  ASSIGN_OR_RETURN(const int memory_clock_khz, Attribute(cudaDevAttrMemoryClockRate, ordinal));
  ASSIGN_OR_RETURN(const int blocks_per_sm,
                   Attribute(cudaDevAttrMaxBlocksPerMultiprocessor, ordinal));
  int driver = 0;
  RETURN_IF_CUDA_ERROR(cudaDriverGetVersion(&driver));

  DeviceTraits traits;
  traits.kind = DeviceKind::kCuda;
  traits.ordinal = ordinal;
  traits.name = props.name;
  traits.uuid = UuidText(props.uuid);
  traits.compute_capability = props.major * 10 + props.minor;
  traits.sm_count = props.multiProcessorCount;
  traits.smem_per_block_bytes = static_cast<int64_t>(props.sharedMemPerBlockOptin);
  traits.smem_per_sm_bytes = static_cast<int64_t>(props.sharedMemPerMultiprocessor);
  traits.smem_reserved_bytes = static_cast<int64_t>(props.reservedSharedMemPerBlock);
  traits.registers_per_sm = props.regsPerMultiprocessor;
  traits.threads_per_sm = props.maxThreadsPerMultiProcessor;
  traits.blocks_per_sm = blocks_per_sm;
  traits.l2_bytes = props.l2CacheSize;
  traits.memory_bytes = static_cast<int64_t>(props.totalGlobalMem);
  // Two transfers a clock, bus width in bits.
  traits.hbm_bytes_per_second =
      kReachableBandwidth * 2.0 * memory_clock_khz * 1e3 * props.memoryBusWidth / 8;
  traits.clock_hz = sm_clock_khz * 1e3;
  traits.driver_version = driver;
  if (traits.compute_capability == 90) {
    RETURN_IF_CUDA_ERROR(cudaSetDevice(ordinal));
    ASSIGN_OR_RETURN(traits.resident_pairs, ResidentPairs());
  }
  if (traits.compute_capability < kMinComputeCapability) {
    return Unimplemented("device " + std::to_string(ordinal) + " (" + traits.name +
                         ") has compute capability " + std::to_string(props.major) + "." +
                         std::to_string(props.minor) + ", below the limit 8.0");
  }
  return traits;
}

}  // namespace gemmd
