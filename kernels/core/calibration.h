// What the cost model takes from measurements of a device, and how it comes from them.
//
// A load-only ring fetches panels from the L2 cache into S stages and gives them back unread, on
// all SMs at once. With one stage a step takes a panel's latency L and its transfer, with enough of
// them the transfer alone, at the bandwidth B into one SM:
//
//     t(1) = L + bytes / B          min over S of t(S) = bytes / B
//
// A compute-only loop of tensor instructions, whose operands are where those of a product lie, has
// the FLOPs. Clocks are those of the highest SM clock, whatever the clock was while it was
// measured: boost and power limits move the real one, and the model turns clocks into seconds by
// the same nominal figure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/core/status.h"

namespace gemmd {

// Of one kind of kernel on one SM.
struct RingCalibration {
  double latency_clocks = 0;   // L: from a panel's request to its arrival, without its transfer
  double bytes_per_clock = 0;  // B: panels from the L2 cache, while all SMs load
  double flops_per_clock = 0;  // of the tensor cores

  friend bool operator==(const RingCalibration&, const RingCalibration&) = default;
};

struct Calibration {
  RingCalibration cp_async;            // cp.async and mma.sync: sm_80 and newer
  std::optional<RingCalibration> tma;  // bulk tensor copies and wgmma: sm_90 alone

  friend bool operator==(const Calibration&, const Calibration&) = default;
};

// Of an H200: what a device has that was not measured, and what the model's constants were fitted
// beside.
inline constexpr Calibration kH200Calibration = {
    .cp_async = {.latency_clocks = 279, .bytes_per_clock = 43.5, .flops_per_clock = 2410},
    .tma =
        RingCalibration{.latency_clocks = 333, .bytes_per_clock = 44.3, .flops_per_clock = 3692}};

// OK when every figure is one that a device can have, and `tma` is there just where the device has
// such kernels. INTERNAL naming the first figure that is not, and its limits.
Status CheckCalibration(const Calibration& calibration, int compute_capability);

// What was measured of one kind of kernel.
struct RingSamples {
  int64_t step_bytes = 0;            // a panel
  std::vector<double> step_seconds;  // of load-only rings of 1, 2, ... stages
  double flops_per_second = 0;       // of one SM
};

// By the formula above. INTERNAL naming `kind` ("tma") and the first sample or figure that cannot
// be.
StatusOr<RingCalibration> FitRing(std::string_view kind, const RingSamples& samples,
                                  double clock_hz);

}  // namespace gemmd
