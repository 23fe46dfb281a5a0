#include "server/metrics/prometheus_observer.h"

#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/engine/totals.h"
#include "server/metrics/metric_text.h"

namespace gemmd {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;

// 100 us .. 60 s, finest where unary calls end.
std::vector<double> RequestBounds() {
  return {100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3,
          0.1,    0.25,   0.5,    1,    2.5,    5,    10,    30,    60};
}
std::vector<double> PhaseBounds() { return GeometricBounds(1e-6, 4, 14); }  // 1 us .. 67 s
// Wide steps: a series for each bound, kernel and stage count.
std::vector<double> KernelBounds() { return GeometricBounds(4e-6, 8, 6); }  // 4 us .. 0.13 s
std::vector<double> ByteBounds() { return GeometricBounds(1024, 4, 12); }   // 1 KiB .. 4 GiB

double Seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

using MoreLabel = std::pair<const char*, std::string_view>;

prometheus::Labels SlotLabels(int slot, std::initializer_list<MoreLabel> more = {}) {
  const LaunchSlot at = SlotAt(slot);
  prometheus::Labels labels = {{"kernel", std::string(kKernelTable[at.row].name)},
                               {"stages", std::to_string(at.stages)}};
  for (const auto& [name, value] : more) labels.emplace(name, value);
  return labels;
}

constexpr std::array<const char*, 8> kPhaseNames = {"decode", "queue",  "plan", "stage",
                                                    "h2d",    "kernel", "d2h",  "unstage"};

}  // namespace

PrometheusObserver::PrometheusObserver(prometheus::Registry& registry) {
  MakeRequestSeries(registry);
  MakeLaunchFamilies(registry);
}

void PrometheusObserver::MakeRequestSeries(prometheus::Registry& registry) {
  auto& rejected = BuildCounter()
                       .Name("gemmd_rejected_total")
                       .Help("Products that were not admitted, by reason.")
                       .Register(registry);
  for (const RejectReason reason : kRejectReasons) {
    rejected_[static_cast<size_t>(reason)] = &rejected.Add({{"reason", std::string(Name(reason))}});
  }
  request_bytes_ = &BuildHistogram()
                        .Name("gemmd_request_bytes")
                        .Help("Bytes of operands and result of an admitted product.")
                        .Register(registry)
                        .Add({}, ByteBounds());
  request_duration_ = &BuildHistogram()
                           .Name("gemmd_request_duration_seconds")
                           .Help("From the arrival of an admitted product to its result.")
                           .Register(registry)
                           .Add({}, RequestBounds());
  auto& phases = BuildHistogram()
                     .Name("gemmd_request_phase_seconds")
                     .Help(
                         "Time in one phase of a request; a phase that it did not have is not "
                         "counted.")
                     .Register(registry);
  for (size_t phase = 0; phase < kPhases; ++phase) {
    phases_[phase] = &phases.Add({{"phase", kPhaseNames[phase]}}, PhaseBounds());
  }
}

void PrometheusObserver::MakeLaunchFamilies(prometheus::Registry& registry) {
  families_ = {
      .launches = &BuildCounter()
                       .Name("gemmd_kernel_launches_total")
                       .Help("Kernel launches that ended, failed ones included.")
                       .Register(registry),
      .durations = &BuildHistogram()
                        .Name("gemmd_kernel_duration_seconds")
                        .Help("Device time of the kernel, by device events.")
                        .Register(registry),
      .stalls = &BuildCounter()
                     .Name("gemmd_kernel_stall_cycles_total")
                     .Help("Cycles that thread blocks waited: for a stage to arrive (full), for a "
                           "stage to be free (empty).")
                     .Register(registry),
      .cycles = &BuildCounter()
                     .Name("gemmd_kernel_cycles_total")
                     .Help("Cycles of thread blocks in the main loop, waits included, and in the "
                           "epilogue.")
                     .Register(registry),
      .plans = &BuildCounter()
                    .Name("gemmd_plan_selected_total")
                    .Help("Plans that ran: their kernel, where they came from, and what bound the "
                          "stage count.")
                    .Register(registry),
  };
  empty_plans_ = &families_.plans->Add({{"kernel", std::string(Plan{}.kernel())},
                                        {"stages", "0"},
                                        {"source", std::string(Name(PlanSource::kModel))},
                                        {"limit", std::string(Name(StageLimit::kNone))}});
  stall_records_dropped_ =
      &BuildCounter()
           .Name("gemmd_kernel_stall_records_dropped_total")
           .Help("Launches whose cycle counters could not be their own, and were counted nowhere.")
           .Register(registry)
           .Add({});
  auto& flops = BuildCounter()
                    .Name("gemmd_kernel_flops_total")
                    .Help("Floating-point operations of products that ended well.")
                    .Register(registry);
  for (size_t row = 0; row < kKernelRows; ++row) {
    if (kKernelTable[row].config.family == Family::kEpilogueOnly) continue;
    flops_[row] = &flops.Add({{"kernel", std::string(kKernelTable[row].name)}});
  }
}

PrometheusObserver::PerLaunch& PrometheusObserver::LaunchOf(int slot) {
  PerLaunch& launch = launches_[static_cast<size_t>(slot)];
  std::call_once(launch.made, [&] {
    launch.launches = &families_.launches->Add(SlotLabels(slot));
    launch.duration = &families_.durations->Add(SlotLabels(slot), KernelBounds());
    if (SlotAt(slot).stages == 0) return;
    launch.wait_full = &families_.stalls->Add(SlotLabels(slot, {{"wait", "full"}}));
    launch.wait_empty = &families_.stalls->Add(SlotLabels(slot, {{"wait", "empty"}}));
    launch.mainloop = &families_.cycles->Add(SlotLabels(slot, {{"part", "mainloop"}}));
    launch.epilogue = &families_.cycles->Add(SlotLabels(slot, {{"part", "epilogue"}}));
  });
  return launch;
}

prometheus::Counter& PrometheusObserver::PlanCounter(int slot, PlanSource source,
                                                     StageLimit limit) {
  LazyCounter& counter = launches_[static_cast<size_t>(slot)]
                             .plans[static_cast<size_t>(source)][static_cast<size_t>(limit)];
  return counter.Of(*families_.plans, [&] {
    return SlotLabels(slot, {{"source", Name(source)}, {"limit", Name(limit)}});
  });
}

void PrometheusObserver::Admitted(const GemmRequest& request) {
  request_bytes_->Observe(static_cast<double>(request.bytes));
}

void PrometheusObserver::Rejected(RejectReason reason) {
  rejected_[static_cast<size_t>(reason)]->Increment();
}

void PrometheusObserver::Completed(const GemmRequest& request, const GemmResult& result) {
  request_duration_->Observe(Seconds(result.times.total));
  ObservePhases(result.times);
  ObserveLaunch(request, result);
}

void PrometheusObserver::ObservePhases(const PhaseTimes& times) {
  const std::array<Nanoseconds, kPhases> spent = {times.decode, times.queue,  times.plan,
                                                  times.stage,  times.h2d,    times.kernel,
                                                  times.d2h,    times.unstage};
  for (size_t phase = 0; phase < kPhases; ++phase) {
    if (spent[phase].count() > 0) phases_[phase]->Observe(Seconds(spent[phase]));
  }
}

void PrometheusObserver::ObserveLaunch(const GemmRequest& request, const GemmResult& result) {
  const Plan& plan = result.plan;
  const int slot = SlotOf(plan.row, plan.stages);
  if (slot < 0) {
    // An OK result without a launch is an empty product; a failure without one had no plan.
    if (result.status.ok()) empty_plans_->Increment();
    return;
  }
  const PerLaunch& launch = LaunchOf(slot);
  PlanCounter(slot, plan.source, plan.limit).Increment();
  prometheus::Counter* const flops = flops_[static_cast<size_t>(plan.row)];
  if (flops != nullptr) flops->Increment(FlopsDone(request, result));
  launch.launches->Increment();
  if (result.status.ok()) launch.duration->Observe(Seconds(result.times.kernel));
  if (result.stalls.dropped) stall_records_dropped_->Increment();
  if (!result.stalls.measured || launch.wait_full == nullptr) return;
  launch.wait_full->Increment(static_cast<double>(result.stalls.wait_full));
  launch.wait_empty->Increment(static_cast<double>(result.stalls.wait_empty));
  launch.mainloop->Increment(static_cast<double>(result.stalls.mainloop));
  launch.epilogue->Increment(static_cast<double>(result.stalls.epilogue));
}

}  // namespace gemmd
