// Which CUDA devices this machine has, and what they are.
#pragma once

#include "kernels/core/device_traits.h"
#include "kernels/core/status.h"

namespace gemmd {

inline constexpr int kMinComputeCapability = 80;  // cp.async

// Ordinals are 0 to the count - 1. UNAVAILABLE with the driver's reason when there is no driver or
// no device.
StatusOr<int> UsableCudaDevices();

// INVALID_ARGUMENT (field device) past the count, UNIMPLEMENTED for a device older than
// kMinComputeCapability.
StatusOr<DeviceTraits> ProbeCudaDevice(int ordinal);

}  // namespace gemmd
