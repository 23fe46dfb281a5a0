#include "server/metrics/prometheus_observer.h"

#include <chrono>
#include <string>
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

prometheus::Labels SlotLabels(const LaunchSlot& slot) {
  return {{"kernel", std::string(kKernelTable[slot.row].name)},
          {"stages", std::to_string(slot.stages)}};
}

// Whether one stage more fits on some device, and on every one, that may have the kernel. A block
// has 99 KiB of shared memory at least on devices since sm_80; only Hopper runs the TMA kernels.
bool MayFitMore(const LaunchSlot& slot) {
  const KernelConfig& config = kKernelTable[slot.row].config;
  return slot.stages < config.max_stages && SmemBytes(config, slot.stages + 1) <= kHopperSmemBytes;
}
bool MustFitMore(const LaunchSlot& slot) {
  constexpr int64_t kLeastSmemBytes = 99 * 1024;
  const KernelConfig& config = kKernelTable[slot.row].config;
  return MayFitMore(slot) && (config.family == Family::kTmaWgmma ||
                              SmemBytes(config, slot.stages + 1) <= kLeastSmemBytes);
}

// Whether the planner can answer so.
bool CanBePlanned(const LaunchSlot& slot, PlanSource source, StageLimit limit) {
  if (slot.stages == 0) return limit == StageLimit::kNone;
  // What a measurement chose says so, also where the request left the stages open.
  if (limit == StageLimit::kMeasured) return source != PlanSource::kModel;
  if (source == PlanSource::kMeasured) return false;
  const KernelConfig& config = kKernelTable[slot.row].config;
  const bool tma = config.family == Family::kTmaWgmma;
  switch (limit) {
    case StageLimit::kNone:
    case StageLimit::kMeasured: return false;
    case StageLimit::kForced: return source == PlanSource::kForced;
    case StageLimit::kKTiles: return true;
    case StageLimit::kSharedMemory: return !MustFitMore(slot);
    // A TMA kernel has one block an SM at any stage count.
    case StageLimit::kResidency: return !tma && MayFitMore(slot);
    // Of those the model takes fewer only where one more would cost the buffers for a whole tile.
    case StageLimit::kModel:
      return MayFitMore(slot) && (!tma || (StoresTileAtOnce(config, slot.stages) &&
                                           !StoresTileAtOnce(config, slot.stages + 1)));
  }
  return false;
}

constexpr std::array<const char*, 8> kPhaseNames = {"decode", "queue",  "plan", "stage",
                                                    "h2d",    "kernel", "d2h",  "unstage"};

}  // namespace

PrometheusObserver::PrometheusObserver(prometheus::Registry& registry) {
  MakeRequestSeries(registry);
  MakeLaunchSeries(registry);
  MakePlanSeries(registry);
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

void PrometheusObserver::MakeLaunchSeries(prometheus::Registry& registry) {
  auto& launches = BuildCounter()
                       .Name("gemmd_kernel_launches_total")
                       .Help("Kernel launches that ended, failed ones included.")
                       .Register(registry);
  auto& durations = BuildHistogram()
                        .Name("gemmd_kernel_duration_seconds")
                        .Help("Device time of the kernel, by device events.")
                        .Register(registry);
  auto& stalls = BuildCounter()
                     .Name("gemmd_kernel_stall_cycles_total")
                     .Help(
                         "Cycles that thread blocks waited: for a stage to arrive (full), for a "
                         "stage to be free (empty).")
                     .Register(registry);
  auto& cycles = BuildCounter()
                     .Name("gemmd_kernel_cycles_total")
                     .Help(
                         "Cycles of thread blocks in the main loop, waits included, and in the "
                         "epilogue.")
                     .Register(registry);
  stall_records_dropped_ =
      &BuildCounter()
           .Name("gemmd_kernel_stall_records_dropped_total")
           .Help("Launches whose cycle counters could not be their own, and were counted nowhere.")
           .Register(registry)
           .Add({});
  for (int slot = 0; slot < kLaunchSlots; ++slot) {
    const LaunchSlot at = SlotAt(slot);
    const auto labels = [&at](const char* name, const char* value) {
      prometheus::Labels all = SlotLabels(at);
      all.emplace(name, value);
      return all;
    };
    PerLaunch& launch = launches_[static_cast<size_t>(slot)];
    launch.launches = &launches.Add(SlotLabels(at));
    launch.duration = &durations.Add(SlotLabels(at), KernelBounds());
    if (at.stages == 0) continue;
    launch.wait_full = &stalls.Add(labels("wait", "full"));
    launch.wait_empty = &stalls.Add(labels("wait", "empty"));
    launch.mainloop = &cycles.Add(labels("part", "mainloop"));
    launch.epilogue = &cycles.Add(labels("part", "epilogue"));
  }
}

void PrometheusObserver::MakePlanSeries(prometheus::Registry& registry) {
  auto& plans = BuildCounter()
                    .Name("gemmd_plan_selected_total")
                    .Help(
                        "Plans that ran: their kernel, where they came from, and what bound the "
                        "stage count.")
                    .Register(registry);
  const auto add = [&plans](prometheus::Labels labels, PlanSource source, StageLimit limit) {
    labels.emplace("source", Name(source));
    labels.emplace("limit", Name(limit));
    return &plans.Add(labels);
  };
  for (int slot = 0; slot < kLaunchSlots; ++slot) {
    const LaunchSlot at = SlotAt(slot);
    auto& counters = launches_[static_cast<size_t>(slot)].plans;
    for (size_t source = 0; source < kSources; ++source) {
      for (size_t limit = 0; limit < kLimits; ++limit) {
        const auto from = static_cast<PlanSource>(source);
        const auto bound = static_cast<StageLimit>(limit);
        if (CanBePlanned(at, from, bound)) {
          counters[source][limit] = add(SlotLabels(at), from, bound);
        }
      }
    }
  }
  empty_plans_ = add({{"kernel", std::string(Plan{}.kernel())}, {"stages", "0"}},
                     PlanSource::kModel, StageLimit::kNone);

  auto& flops = BuildCounter()
                    .Name("gemmd_kernel_flops_total")
                    .Help("Floating-point operations of products that ended well.")
                    .Register(registry);
  for (size_t row = 0; row < kKernelRows; ++row) {
    if (kKernelTable[row].config.family == Family::kEpilogueOnly) continue;
    flops_[row] = &flops.Add({{"kernel", std::string(kKernelTable[row].name)}});
  }
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
  const PerLaunch& launch = launches_[static_cast<size_t>(slot)];
  prometheus::Counter* const selected =
      launch.plans[static_cast<size_t>(plan.source)][static_cast<size_t>(plan.limit)];
  if (selected != nullptr) selected->Increment();
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
