#include "kernels/core/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "kernels/core/text.h"

namespace gemmd {
namespace {

// Wide: what lies outside is an error of measuring, or of a file.
struct Limits {
  double least = 0, most = 0;
};
constexpr Limits kLatencyClocks = {50, 20'000};
constexpr Limits kBytesPerClock = {4, 1'024};
constexpr Limits kFlopsPerClock = {64, 65'536};

Status CheckFigure(std::string_view kind, const char* name, double value, const Limits& limits) {
  if (value >= limits.least && value <= limits.most) return OkStatus();
  return Internal("calibration: " + std::string(kind) + "." + name + "=" + Short(value) +
                  " is not from " + Short(limits.least) + " to " + Short(limits.most));
}

Status CheckRing(std::string_view kind, const RingCalibration& ring) {
  RETURN_IF_ERROR(CheckFigure(kind, "latency_clocks", ring.latency_clocks, kLatencyClocks));
  RETURN_IF_ERROR(CheckFigure(kind, "bytes_per_clock", ring.bytes_per_clock, kBytesPerClock));
  return CheckFigure(kind, "flops_per_clock", ring.flops_per_clock, kFlopsPerClock);
}

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

Status CheckCalibration(const Calibration& calibration, int compute_capability) {
  RETURN_IF_ERROR(CheckRing("cp_async", calibration.cp_async));
  const bool has_tma = compute_capability == 90;
  if (calibration.tma.has_value() != has_tma) {
    return Internal("calibration: tma is " + std::string(has_tma ? "missing" : "there") +
                    ", and the device's compute_capability=" + std::to_string(compute_capability) +
                    " is " + (has_tma ? "" : "not ") + "90");
  }
  return has_tma ? CheckRing("tma", *calibration.tma) : OkStatus();
}

StatusOr<RingCalibration> FitRing(std::string_view kind, const RingSamples& samples,
                                  double clock_hz) {
  const auto refuse = [&kind](const std::string& what) {
    return Internal("calibration: " + std::string(kind) + "." + what);
  };
  const std::vector<double>& seconds = samples.step_seconds;
  if (samples.step_bytes < 1) {
    return refuse("step_bytes=" + std::to_string(samples.step_bytes) + " is below 1");
  }
  if (!IsPositive(clock_hz)) return refuse("clock_hz=" + Short(clock_hz) + " is not above 0");
  if (seconds.size() < 2) {
    return refuse("step_seconds has " + std::to_string(seconds.size()) +
                  " stage counts, the least is 2");
  }
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (IsPositive(seconds[i])) continue;
    return refuse("step_seconds=" + Short(seconds[i]) + " with " + std::to_string(i + 1) +
                  " stages is not above 0 and finite");
  }
  const double transfer = *std::min_element(seconds.begin(), seconds.end());
  const RingCalibration ring = {
      .latency_clocks = (seconds.front() - transfer) * clock_hz,
      .bytes_per_clock = static_cast<double>(samples.step_bytes) / (transfer * clock_hz),
      .flops_per_clock = samples.flops_per_second / clock_hz};
  RETURN_IF_ERROR(CheckRing(kind, ring));
  return ring;
}

}  // namespace gemmd
