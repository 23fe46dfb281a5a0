// What tuning reports. Implemented by server/metrics; tuning knows nothing of Prometheus.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/core/timing.h"

namespace gemmd {

// How a run of Tune or Study ended.
enum class TuningResult : uint8_t {
  kOk,
  kBudget,     // its time was spent first
  kCancelled,  // its caller gave it up
  kDrained,    // the server ended first
  kFailed,
};
inline constexpr TuningResult kTuningResults[] = {TuningResult::kOk, TuningResult::kBudget,
                                                  TuningResult::kCancelled, TuningResult::kDrained,
                                                  TuningResult::kFailed};
std::string_view Name(TuningResult result);  // "ok", "budget", "cancelled", "drained", "failed"

class TuningObserver {  // Thread-safe. No call may block.
 public:
  virtual ~TuningObserver() = default;
  // A device is being timed from now on, or no longer is.
  virtual void MeasuringChanged(bool measuring) = 0;
  // A problem was timed, or given up, on one device after `time`; `ok` where its times are known.
  virtual void Measured(bool ok, Nanoseconds time) = 0;
  // Once for every run that was not refused. Tuning in the background is no run.
  virtual void RunEnded(TuningResult result) = 0;
};

}  // namespace gemmd
