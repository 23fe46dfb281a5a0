// A request's image in device memory (device_image.h), as the kernels see it.
#pragma once

#include <cstddef>

#include "kernels/core/timing.h"
#include "kernels/cuda/device_image.h"
#include "kernels/cuda/gemm_params.h"

namespace gemmd {

// Operands and layouts of an image that begins at `base` in device memory; with a probe, without a
// workspace.
GemmParams ParamsFor(const DeviceImage& image, std::byte* base);

// What a launch's probe has counted; kStallBytes of host memory are at `at`.
StallSample ReadCounters(const std::byte* at);

}  // namespace gemmd
