#include "server/metrics/tuning_metrics.h"

#include <chrono>
#include <string>

namespace gemmd {

using prometheus::BuildCounter;
using prometheus::BuildGauge;

TuningMetrics::TuningMetrics(prometheus::Registry& registry) {
  auto& runs = BuildCounter()
                   .Name("gemmd_tuning_runs_total")
                   .Help("Runs of Tune and Study that ended, by how; refused ones are not counted.")
                   .Register(registry);
  for (const TuningResult result : kTuningResults) {
    runs_[static_cast<size_t>(result)] = &runs.Add({{"result", std::string(Name(result))}});
  }
  problems_ = &BuildCounter()
                   .Name("gemmd_tuning_problems_total")
                   .Help("Problems that were timed on a device, in the background too.")
                   .Register(registry)
                   .Add({});
  running_ = &BuildGauge()
                  .Name("gemmd_tuning_running")
                  .Help("1 while plans are timed on a device, else 0.")
                  .Register(registry)
                  .Add({});
  seconds_ = &BuildCounter()
                  .Name("gemmd_tuning_seconds_total")
                  .Help("Time that devices were measured in, what was given up included.")
                  .Register(registry)
                  .Add({});
  auto& saves = BuildCounter()
                    .Name("gemmd_tuning_saves_total")
                    .Help("Saves of the tuning file, by how they ended.")
                    .Register(registry);
  saved_ = &saves.Add({{"result", "ok"}});
  save_failed_ = &saves.Add({{"result", "failed"}});
}

void TuningMetrics::MeasuringChanged(bool measuring) { running_->Set(measuring ? 1 : 0); }

void TuningMetrics::Measured(bool ok, Nanoseconds time) {
  if (ok) problems_->Increment();
  seconds_->Increment(std::chrono::duration<double>(time).count());
}

void TuningMetrics::RunEnded(TuningResult result) {
  runs_[static_cast<size_t>(result)]->Increment();
}

void TuningMetrics::Saved(bool ok) { (ok ? saved_ : save_failed_)->Increment(); }

}  // namespace gemmd
