// Counts runs of tuning and studies, what they measured and how long that took.
#pragma once

#include <array>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "server/tuning/tuning_observer.h"

namespace gemmd {

class TuningMetrics : public TuningObserver {  // Thread-safe.
 public:
  // Adds its series to `registry`, which outlives it. One a registry.
  explicit TuningMetrics(prometheus::Registry& registry);

  void MeasuringChanged(bool measuring) override;
  void Measured(bool ok, Nanoseconds time) override;
  void RunEnded(TuningResult result) override;
  // The tuning file was written, or could not be.
  void Saved(bool ok);

 private:
  std::array<prometheus::Counter*, std::size(kTuningResults)> runs_{};
  prometheus::Counter* problems_ = nullptr;
  prometheus::Gauge* running_ = nullptr;
  prometheus::Counter* seconds_ = nullptr;
  prometheus::Counter* saved_ = nullptr;
  prometheus::Counter* save_failed_ = nullptr;
};

}  // namespace gemmd
