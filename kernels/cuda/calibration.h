// Measures what the cost model takes from a CUDA device: load-only rings and compute-only loops
// (kernels/core/calibration.h), on all SMs at once, on data that stays in the L2 cache.
#pragma once

#include <optional>
#include <stop_token>

#include "kernels/core/calibration.h"
#include "kernels/core/device_traits.h"
#include "kernels/core/status.h"
#include "kernels/cuda/measure.h"

namespace gemmd {

struct CalibrationSamples {
  RingSamples cp_async;            // 1 to 8 stages
  std::optional<RingSamples> tma;  // 1 to 16; on sm_90 alone
};

inline constexpr int kCalibrationRounds = 7;  // samples of each

// All of them, in turns within one run of a second or so. The device is traits.ordinal, which
// becomes the current one. CANCELLED soon after a request on `stop`; RESOURCE_EXHAUSTED when there
// is no memory for the data, some megabytes.
StatusOr<CalibrationSamples> MeasureCalibration(const DeviceTraits& traits, int rounds,
                                                const std::stop_token& stop);

// INTERNAL where the samples cannot be of a device that does nothing else.
StatusOr<Calibration> FitCalibration(const CalibrationSamples& samples, const DeviceTraits& traits);

}  // namespace gemmd
