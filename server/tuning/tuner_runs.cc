// What the tuner's runs do, on its thread or, in the background, on their caller's.
#include <algorithm>
#include <utility>

#include "kernels/core/quantile.h"
#include "kernels/core/text.h"
#include "kernels/plan/tune.h"
#include "server/tuning/tuner.h"

namespace gemmd {
namespace {

constexpr std::chrono::seconds kSaveInterval{5};
// Of a profile: short enough to end soon, long enough to hide the time between two.
constexpr TimingOptions kProfileTiming = {.rounds = 1, .sample_seconds = 20e-3};
constexpr int kStudyRounds = 11;  // enough for the 5th and 95th percentile to say something

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// The row's plans of one part and without pairs, from the fewest stages up.
std::vector<Plan> PlansToStudy(const Planner& planner, const GemmProblem& problem, int row,
                               int max_stages) {
  std::vector<Plan> plans = planner.Candidates(problem, {.row = row, .stages = {}, .split_k = 1});
  std::erase_if(plans, [max_stages](const Plan& plan) {
    return plan.pair || (max_stages > 0 && plan.stages > max_stages);
  });
  std::sort(plans.begin(), plans.end(),
            [](const Plan& x, const Plan& y) { return x.stages < y.stages; });
  return plans;
}

// `first` is the first failure.
Status Summary(int failed, int total, const Status& first) {
  if (failed == 0) return OkStatus();
  return Status(first.code(), std::to_string(failed) + " of " + Count(total, "problem") +
                                  " were not measured; the first: " + first.message());
}

}  // namespace

// Saves after the first problem, so that a path which cannot be written is told at once, then every
// few seconds, and what is left at the end.
class Tuner::Saver {
 public:
  explicit Saver(const Save& save) : save_(save) {}

  Status Learnt() {
    unsaved_ = true;
    return SteadyClock::now() < next_ ? OkStatus() : Flush();
  }
  // All that was learnt is written down.
  bool saved() const { return save_ && !unsaved_ && !failed_; }
  Status Flush() {
    if (!unsaved_ || !save_) return OkStatus();
    unsaved_ = false;
    Status status = save_();
    next_ = SteadyClock::now() + kSaveInterval;
    failed_ = !status.ok();
    if (!failed_) return status;
    return FailedPrecondition("what was measured is in use and not saved: " + status.message());
  }

 private:
  const Save& save_;
  bool unsaved_ = false, failed_ = false;
  SteadyClock::time_point next_ = SteadyClock::time_point::min();
};

Status Tuner::RunTune(const TuneRun& run, const std::stop_token& stop) {
  Saver saver(save_);
  TuneStep step;
  step.total = static_cast<int>(run.problems.size());
  if (run.progress) run.progress(step);
  if (run.calibrate) {
    for (const TuningDevice& device : devices_) {
      ASSIGN_OR_RETURN(DeviceCalibration found, Calibrate(device, stop));
      step.calibrations.push_back(std::move(found));
      if (run.progress) run.progress(step);
      RETURN_IF_ERROR(saver.Learnt());
    }
  }
  const SteadyClock::time_point first_problem = SteadyClock::now();
  Status ended, first_failure;
  int failed = 0;
  for (const GemmProblem& problem : run.problems) {
    StatusOr<Plan> best = TuneEverywhere(problem, stop);
    if (!best.ok() && best.status().code() != StatusCode::kResourceExhausted) {
      ended = best.status();
      break;
    }
    if (!best.ok() && failed++ == 0) first_failure = best.status();
    if (best.ok()) ended = saver.Learnt();
    ++step.done;
    if (saver.saved()) step.saved = step.done;
    step.problem = problem;
    step.best = best.ok() ? std::optional<Plan>(*best) : std::nullopt;
    step.seconds_left = SecondsSince(first_problem) / step.done * (step.total - step.done);
    if (run.progress) run.progress(step);
    if (!ended.ok()) break;
  }
  RETURN_IF_ERROR(saver.Flush());
  RETURN_IF_ERROR(ended);
  return Summary(failed, step.total, first_failure);
}

Status Tuner::RunStudy(const StudyRun& run, const std::stop_token& stop) {
  for (const GemmProblem& problem : run.problems) {
    RETURN_IF_ERROR(StudyOne(run, problem, stop));
  }
  return OkStatus();
}

Status Tuner::StudyOne(const StudyRun& run, const GemmProblem& problem,
                       const std::stop_token& stop) {
  const PlanConstraints constraints = {.row = run.row, .stages = {}, .split_k = {}};
  ASSIGN_OR_RETURN(const TuningDevice* const device, DeviceFor(problem, constraints));
  ASSIGN_OR_RETURN(const Plan chosen, device->planner->PlanFor(problem, constraints));
  const std::vector<Plan> plans =
      PlansToStudy(device->planner->model(), problem, chosen.row, run.max_stages);
  std::vector<PlanTiming> timings;
  RETURN_IF_ERROR(Measure(*device, problem, stop, [&](PlanTimer& timer) -> Status {
    ASSIGN_OR_RETURN(timings, timer.Time(plans, {.rounds = kStudyRounds, .stalls = true}, stop));
    return OkStatus();
  }));
  for (size_t i = 0; i < plans.size(); ++i) {
    run.point({.problem = problem, .plan = plans[i], .timing = timings[i]});
    if (stop.stop_requested()) return Cancelled("cancelled");
  }
  return OkStatus();
}

Status Tuner::RunProfile(const ProfileRun& run, const std::stop_token& stop) {
  const GemmProblem& problem = run.problems.front();
  ASSIGN_OR_RETURN(const TuningDevice* const device, DeviceFor(problem, run.constraints));
  struct Profile profile;
  ASSIGN_OR_RETURN(profile.plan, device->planner->PlanFor(problem, run.constraints));
  profile.reasons = device->backend->sampler()->reasons();
  std::vector<double> medians;
  RETURN_IF_ERROR(Measure(*device, problem, stop, [&](PlanTimer& timer) -> Status {
    ASSIGN_OR_RETURN(profile.samples, sampler_->Sample(*device->backend, [&]() -> Status {
      const SteadyClock::time_point until = SteadyClock::now() + run.duration;
      do {
        ASSIGN_OR_RETURN(const std::vector<PlanTiming> timings,
                         timer.Time({&profile.plan, 1}, kProfileTiming, stop));
        medians.push_back(timings.front().median_seconds);
      } while (SteadyClock::now() < until);
      return OkStatus();
    }));
    return OkStatus();
  }));
  std::ranges::sort(medians);
  profile.median_seconds = Quantile(medians, 0.5);
  run.result(profile);
  return OkStatus();
}

// --- Measuring ---

Status Tuner::Use(const TuningDevice& device, const std::stop_token& stop,
                  const std::function<Status()>& work) {
  if (stop.stop_requested()) return Cancelled("cancelled");
  if (observer_ != nullptr) observer_->MeasuringChanged(true);
  Status status = work();
  if (observer_ != nullptr) observer_->MeasuringChanged(false);
  if (status.ok() || device.backend->healthy()) return status;
  return DeviceLost();
}

Status Tuner::Measure(const TuningDevice& device, const GemmProblem& problem,
                      const std::stop_token& stop, const std::function<Status(PlanTimer&)>& with) {
  return Use(device, stop, [&] {
    const SteadyClock::time_point start = SteadyClock::now();
    Status status = [&]() -> Status {
      ASSIGN_OR_RETURN(const std::unique_ptr<PlanTimer> timer,
                       device.backend->MakePlanTimer(problem));
      return with(*timer);
    }();
    if (observer_ != nullptr) observer_->Measured(status.ok(), SteadyClock::now() - start);
    return status;
  });
}

StatusOr<DeviceCalibration> Tuner::Calibrate(const TuningDevice& device,
                                             const std::stop_token& stop) {
  const DeviceTraits& traits = device.backend->traits();
  DeviceCalibration found{.ordinal = traits.ordinal, .device = traits.name, .calibration = {}};
  RETURN_IF_ERROR(Use(device, stop, [&]() -> Status {
    ASSIGN_OR_RETURN(found.calibration, device.backend->Calibrate(stop));
    return device.planner->Calibrate(found.calibration);
  }));
  return found;
}

Status Tuner::TuneOn(const TuningDevice& device, const GemmProblem& problem,
                     const std::stop_token& stop) {
  return Measure(device, problem, stop, [&](PlanTimer& timer) -> Status {
    ASSIGN_OR_RETURN(TuningEntry entry,
                     TuneProblem(device.planner->model(), problem, timer, {}, stop));
    device.planner->Learn(std::move(entry));
    return OkStatus();
  });
}

// What the problem gets from now on, on the first device that runs it.
StatusOr<Plan> Tuner::TuneEverywhere(const GemmProblem& problem, const std::stop_token& stop) {
  const TuningDevice* first = nullptr;
  for (const TuningDevice& device : devices_) {
    if (!CheckRunnable(device, problem, {}).ok()) continue;
    RETURN_IF_ERROR(TuneOn(device, problem, stop));
    if (first == nullptr) first = &device;
  }
  if (first == nullptr) return Internal("no device runs " + ToString(problem));
  return first->planner->PlanFor(problem);
}

// --- In the background ---

Status Tuner::TuneInBackground(const GemmProblem& problem, const std::stop_source& stop) {
  {
    MutexLock lock(mu_);
    if (draining_ || job_ || ending_ || background_) return Cancelled("the tuner is busy");
    background_ = stop;
  }
  Saver saver(save_);
  Status status = TuneEverywhere(problem, stop.get_token()).status();
  if (status.ok()) status = saver.Learnt();
  MutexLock lock(mu_);
  background_.reset();
  changed_.NotifyAll();
  return status;
}

bool Tuner::IsMeasured(const GemmProblem& problem) const {
  return std::all_of(devices_.begin(), devices_.end(), [&](const TuningDevice& device) {
    if (!CheckRunnable(device, problem, {}).ok()) return true;
    const StatusOr<Plan> plan = device.planner->PlanFor(problem);
    return plan.ok() && plan->measured_seconds > 0;
  });
}

}  // namespace gemmd
