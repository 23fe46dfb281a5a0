// Turns what the engine reports into Prometheus counters and histograms.
//
// Labels come from closed sets (the kernel table, limits, sources, reasons), so the number of
// series has a bound. A kernel and stage count is exported from its first launch on: a server runs
// few of all there are, and a scrape costs what it holds. Any later launch costs additions and no
// look-up. tests/golden/metrics.txt lists every name, type and label.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "server/engine/launch_slots.h"
#include "server/engine/observer.h"
#include "server/metrics/lazy_counter.h"

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

  struct LaunchFamilies {
    prometheus::Family<prometheus::Counter>* launches = nullptr;
    prometheus::Family<prometheus::Histogram>* durations = nullptr;
    prometheus::Family<prometheus::Counter>* stalls = nullptr;
    prometheus::Family<prometheus::Counter>* cycles = nullptr;
    prometheus::Family<prometheus::Counter>* plans = nullptr;
  };

  // One kernel and stage count. The cycle counters stay null for a kernel without a ring.
  struct PerLaunch {
    std::once_flag made;  // all of these but the plans, which each have a first time of their own
    prometheus::Counter* launches = nullptr;
    prometheus::Histogram* duration = nullptr;
    prometheus::Counter* wait_full = nullptr;
    prometheus::Counter* wait_empty = nullptr;
    prometheus::Counter* mainloop = nullptr;
    prometheus::Counter* epilogue = nullptr;
    std::array<std::array<LazyCounter, kLimits>, kSources> plans;
  };

  void MakeRequestSeries(prometheus::Registry& registry);
  void MakeLaunchFamilies(prometheus::Registry& registry);
  PerLaunch& LaunchOf(int slot);
  prometheus::Counter& PlanCounter(int slot, PlanSource source, StageLimit limit);
  void ObservePhases(const PhaseTimes& times);
  void ObserveLaunch(const GemmRequest& request, const GemmResult& result);

  prometheus::Histogram* request_bytes_ = nullptr;
  prometheus::Histogram* request_duration_ = nullptr;
  std::array<prometheus::Counter*, std::size(kRejectReasons)> rejected_{};
  std::array<prometheus::Histogram*, kPhases> phases_{};
  LaunchFamilies families_;
  std::array<PerLaunch, kLaunchSlots> launches_{};
  std::array<prometheus::Counter*, kKernelRows> flops_{};  // null: never reads A and B
  prometheus::Counter* empty_plans_ = nullptr;
  prometheus::Counter* stall_records_dropped_ = nullptr;  // of all kernels: they are defects
};

}  // namespace gemmd
