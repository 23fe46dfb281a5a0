// Turns what the engine reports into Prometheus counters and histograms.
//
// Every series is made at construction from closed sets (the kernel table, limits, sources,
// reasons), so that a request costs additions and no look-up, and the number of series is a
// constant. tests/golden/metrics.txt lists every name, type and label.
#pragma once

#include <array>
#include <cstddef>

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "server/engine/launch_slots.h"
#include "server/engine/observer.h"

namespace gemmd {

class PrometheusObserver : public EngineObserver {  // Thread-safe.
 public:
  // Adds its series to `registry`, which outlives it. One a registry.
  explicit PrometheusObserver(prometheus::Registry& registry);

  void Admitted(const GemmRequest& request) override;
  void Rejected(RejectReason reason) override;
  void Completed(const GemmRequest& request, const GemmResult& result) override;

 private:
  static constexpr size_t kPhases = 8;   // of PhaseTimes, without the total
  static constexpr size_t kSources = 3;  // PlanSource
  static constexpr size_t kLimits = 7;   // StageLimit

  // One kernel and stage count. The cycle counters are null for a kernel without a ring.
  struct PerLaunch {
    prometheus::Counter* launches = nullptr;
    prometheus::Histogram* duration = nullptr;
    prometheus::Counter* wait_full = nullptr;
    prometheus::Counter* wait_empty = nullptr;
    prometheus::Counter* mainloop = nullptr;
    prometheus::Counter* epilogue = nullptr;
    std::array<std::array<prometheus::Counter*, kLimits>, kSources> plans{};
  };

  void MakeRequestSeries(prometheus::Registry& registry);
  void MakeLaunchSeries(prometheus::Registry& registry);
  void MakePlanSeries(prometheus::Registry& registry);
  void ObservePhases(const PhaseTimes& times);
  void ObserveLaunch(const GemmRequest& request, const GemmResult& result);

  prometheus::Histogram* request_bytes_ = nullptr;
  prometheus::Histogram* request_duration_ = nullptr;
  std::array<prometheus::Counter*, std::size(kRejectReasons)> rejected_{};
  std::array<prometheus::Histogram*, kPhases> phases_{};
  std::array<PerLaunch, kLaunchSlots> launches_{};
  std::array<prometheus::Counter*, kKernelRows> flops_{};  // null: never reads A and B
  prometheus::Counter* empty_plans_ = nullptr;
  prometheus::Counter* stall_records_dropped_ = nullptr;  // of all kernels: they are defects
};

}  // namespace gemmd
