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
std::vector<double> PhaseBounds() { return GeometricBounds(1e-6, 4, 14); }   // 1 us .. 67 s
std::vector<double> KernelBounds() { return GeometricBounds(2e-6, 2, 20); }  // 2 us .. 1.05 s
std::vector<double> ByteBounds() { return GeometricBounds(1024, 4, 12); }    // 1 KiB .. 4 GiB

double Seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

constexpr std::array<const char*, 8> kPhaseNames = {"decode", "queue",  "plan", "stage",
                                                    "h2d",    "kernel", "d2h",  "unstage"};

}  // namespace

PrometheusObserver::PrometheusObserver(prometheus::Registry& registry) {
  MakeRequestSeries(registry);
  MakeLaunchSeries(registry);
  MakePlanSeries(registry);
}

void PrometheusObserver::MakeRequestSeries(prometheus::Registry& registry) {
  started_ = &BuildCounter()
                  .Name("gemmd_requests_started_total")
                  .Help("Products admitted to the queue.")
                  .Register(registry)
                  .Add({});
  auto& requests = BuildCounter()
                       .Name("gemmd_requests_total")
                       .Help("Admitted products that ended, by status code.")
                       .Register(registry);
  for (size_t code = 0; code < kCodes; ++code) {
    requests_[code] =
        &requests.Add({{"code", std::string(StatusCodeName(static_cast<StatusCode>(code)))}});
  }
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
  auto& durations = BuildHistogram()
                        .Name("gemmd_request_duration_seconds")
                        .Help("From the request's arrival to its result, by type of A.")
                        .Register(registry);
  auto& flops = BuildCounter()
                    .Name("gemmd_flops_total")
                    .Help("Floating-point operations of finished products, by type of A.")
                    .Register(registry);
  for (size_t type = 0; type < kTypes; ++type) {
    const std::string name(Name(static_cast<DType>(type)));
    types_[type].request_duration = &durations.Add({{"dtype", name}}, RequestBounds());
    types_[type].flops = &flops.Add({{"dtype", name}});
  }
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
                       .Name("gemmd_launches_total")
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
  for (int slot = 0; slot < kLaunchSlots; ++slot) {
    const LaunchSlot at = SlotAt(slot);
    const auto labels = [&at](const char* name = nullptr, const char* value = nullptr) {
      prometheus::Labels all = {{"kernel", std::string(kKernelTable[at.row].name)},
                                {"stages", std::to_string(at.stages)}};
      if (name != nullptr) all.emplace(name, value);
      return all;
    };
    PerLaunch& launch = launches_[static_cast<size_t>(slot)];
    launch.launches = &launches.Add(labels());
    launch.duration = &durations.Add(labels(), KernelBounds());
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
  for (int row = -1; row < kKernelRows; ++row) {
    Plan plan;
    plan.row = row;
    for (size_t source = 0; source < kSources; ++source) {
      for (size_t limit = 0; limit < kLimits; ++limit) {
        // No ring, no stage count to bind; and the other way round.
        const bool ring = row >= 0 && kKernelTable[row].config.max_stages > 0;
        if (ring == (static_cast<StageLimit>(limit) == StageLimit::kNone)) continue;
        plans_[static_cast<size_t>(row + 1)][source][limit] =
            &plans.Add({{"kernel", std::string(plan.kernel())},
                        {"source", std::string(Name(static_cast<PlanSource>(source)))},
                        {"limit", std::string(Name(static_cast<StageLimit>(limit)))}});
      }
    }
  }
}

void PrometheusObserver::Admitted(const GemmRequest& request) {
  started_->Increment();
  request_bytes_->Observe(static_cast<double>(request.bytes));
}

void PrometheusObserver::Rejected(RejectReason reason) {
  rejected_[static_cast<size_t>(reason)]->Increment();
}

void PrometheusObserver::Completed(const GemmRequest& request, const GemmResult& result) {
  requests_[static_cast<size_t>(result.status.code())]->Increment();
  const PerType& type = types_[static_cast<size_t>(request.problem.type_a)];
  type.request_duration->Observe(Seconds(result.times.total));
  type.flops->Increment(FlopsDone(request, result));
  ObservePhases(result.times);
  ObserveLaunch(result);
}

void PrometheusObserver::ObservePhases(const PhaseTimes& times) {
  const std::array<Nanoseconds, kPhases> spent = {times.decode, times.queue,  times.plan,
                                                  times.stage,  times.h2d,    times.kernel,
                                                  times.d2h,    times.unstage};
  for (size_t phase = 0; phase < kPhases; ++phase) {
    if (spent[phase].count() > 0) phases_[phase]->Observe(Seconds(spent[phase]));
  }
}

void PrometheusObserver::ObserveLaunch(const GemmResult& result) {
  const Plan& plan = result.plan;
  // An OK result without a launch is an empty product; a failure without one had no plan.
  if (result.status.ok() || plan.row >= 0) {
    prometheus::Counter* selected =
        plans_[static_cast<size_t>(plan.row + 1)][static_cast<size_t>(plan.source)]
              [static_cast<size_t>(plan.limit)];
    if (selected != nullptr) selected->Increment();
  }
  const int slot = SlotOf(plan.row, plan.stages);
  if (slot < 0) return;
  const PerLaunch& launch = launches_[static_cast<size_t>(slot)];
  launch.launches->Increment();
  if (result.status.ok()) launch.duration->Observe(Seconds(result.times.kernel));
  if (!result.stalls.measured || launch.wait_full == nullptr) return;
  launch.wait_full->Increment(static_cast<double>(result.stalls.wait_full));
  launch.wait_empty->Increment(static_cast<double>(result.stalls.wait_empty));
  launch.mainloop->Increment(static_cast<double>(result.stalls.mainloop));
  launch.epilogue->Increment(static_cast<double>(result.stalls.epilogue));
}

}  // namespace gemmd
