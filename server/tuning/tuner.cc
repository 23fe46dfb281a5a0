#include "server/tuning/tuner.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "kernels/core/text.h"
#include "kernels/plan/tune.h"

namespace gemmd {
namespace {

constexpr std::chrono::seconds kSaveInterval{5};
constexpr std::chrono::milliseconds kRetryWhenBusy{1000};
// Long enough for a restart, or for a balancer to take this server out.
constexpr std::chrono::milliseconds kRetryWhenAway{1000};
constexpr int kStudyRounds = 11;  // enough for the 5th and 95th percentile to say something

Status Draining() { return Unavailable("the server is draining").WithRetryAfter(kRetryWhenAway); }

Status DeviceLost() {
  return Unavailable("device lost, the server must restart").WithRetryAfter(kRetryWhenAway);
}

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// Requests a stop at a point in time, unless it is destroyed first.
class Timeout {
 public:
  Timeout(SteadyClock::time_point when, std::stop_source stop)
      : thread_([this, when, stop = std::move(stop)](const std::stop_token& over) mutable {
          std::mutex mu;
          std::unique_lock<std::mutex> lock(mu);
          std::condition_variable_any never;
          never.wait_until(lock, over, when, [] { return false; });
          if (over.stop_requested()) return;
          passed_ = true;
          stop.request_stop();
        }) {}

  bool passed() const { return passed_; }

 private:
  std::atomic<bool> passed_{false};
  std::jthread thread_;
};

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

std::string ProblemCount(const TuningRun& run) {
  return Count(static_cast<int64_t>(run.problems.size()), "problem");
}

// `first` is the first failure.
Status Summary(int failed, int total, const Status& first) {
  if (failed == 0) return OkStatus();
  return Status(first.code(), std::to_string(failed) + " of " + Count(total, "problem") +
                                  " were not measured; the first: " + first.message());
}

}  // namespace

std::string_view Name(TuningResult result) {
  switch (result) {
    case TuningResult::kOk: return "ok";
    case TuningResult::kBudget: return "budget";
    case TuningResult::kCancelled: return "cancelled";
    case TuningResult::kDrained: return "drained";
    case TuningResult::kFailed: return "failed";
  }
  return "failed";
}

Status AboutProblem(int index, const Status& status) {
  const std::string entry = "problems[" + std::to_string(index) + "]";
  const std::string one = "problem";
  std::string field = status.field();
  std::string message = status.message();
  if (message.starts_with(one + ".")) {
    message.replace(0, one.size(), entry);
  } else {
    message = entry + ": " + message;
  }
  if (field.empty()) {
    field = entry;
  } else if (field == one || field.starts_with(one + ".")) {
    field.replace(0, one.size(), entry);
  }
  return Status(status.code(), std::move(message)).WithField(std::move(field));
}

// What Start() puts on the tuner's thread.
struct Tuner::Job {
  std::string name;     // "a tune of 12 problems"
  bool learns = false;  // or only reports what it measures
  std::stop_source stop;
  std::optional<Nanoseconds> budget;
  std::function<Status(const std::stop_token&)> run;
  std::function<void(Status)> done;
};

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

Tuner::Tuner(std::vector<TuningDevice> devices, Save save, TuningObserver* observer,
             std::string saved_in)
    : devices_(std::move(devices)),
      save_(std::move(save)),
      saved_in_(std::move(saved_in)),
      observer_(observer) {
  thread_ = std::thread([this] { Loop(); });
}

Tuner::~Tuner() {
  StartDrain();
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

// --- Admission ---

Status Tuner::CheckRunnable(const TuningDevice& device, const GemmProblem& problem,
                            const PlanConstraints& constraints) {
  // Not through the planner's memory, out of which a long list would push the plans that are
  // served, and without planning where the types decide.
  const Planner& model = device.planner->model();
  RETURN_IF_ERROR(constraints.any() ? model.PlanFor(problem, constraints).status()
                                    : CheckSupported(problem, model.traits()));
  return device.backend->CheckTimable(problem);
}

Status Tuner::CheckProblems(const TuningRun& run, const PlanConstraints& constraints) const {
  const int count = static_cast<int>(std::min<size_t>(run.problems.size(), kMaxTuningProblems + 1));
  if (count == 0) return InvalidArgument("problems", "problems has no entries; at least 1");
  if (count > kMaxTuningProblems) {
    return InvalidArgument("problems", "problems has " + std::to_string(run.problems.size()) +
                                           " entries, the limit is " +
                                           std::to_string(kMaxTuningProblems));
  }
  for (int i = 0; i < count; ++i) {
    const GemmProblem& problem = run.problems[static_cast<size_t>(i)];
    if (problem.empty()) {
      return AboutProblem(i, InvalidArgument("problem",
                                             "m, n or batch is 0, and nothing takes no "
                                             "time; the least is 1"));
    }
    Status first;
    bool runnable = false;
    for (const TuningDevice& device : devices_) {
      Status status = CheckRunnable(device, problem, constraints);
      runnable = runnable || status.ok();
      if (first.ok()) first = std::move(status);
    }
    if (!runnable) return AboutProblem(i, first);
  }
  return OkStatus();
}

Status Tuner::Tune(TuneRun run) {
  if (!run.problems.empty() || !run.calibrate) RETURN_IF_ERROR(CheckProblems(run, {}));
  for (const TuningDevice& device : devices_) {
    if (run.calibrate) RETURN_IF_ERROR(device.backend->CheckCalibrates());
  }
  auto job = std::make_unique<Job>();
  job->name = run.problems.empty() ? "a calibration" : "a tune of " + ProblemCount(run);
  job->learns = true;
  job->stop = run.stop;
  job->budget = run.budget;
  job->done = std::move(run.done);
  job->run = [this, run = std::move(run)](const std::stop_token& stop) {
    return RunTune(run, stop);
  };
  return Start(std::move(job));
}

Status Tuner::Study(StudyRun run) {
  RETURN_IF_ERROR(CheckProblems(run, {.row = run.row, .stages = {}, .split_k = {}}));
  auto job = std::make_unique<Job>();
  job->name = "a study of " + ProblemCount(run);
  job->stop = run.stop;
  job->done = std::move(run.done);
  job->run = [this, run = std::move(run)](const std::stop_token& stop) {
    return RunStudy(run, stop);
  };
  return Start(std::move(job));
}

Status Tuner::Start(std::unique_ptr<Job> job) {
  for (const TuningDevice& device : devices_) {
    if (!device.backend->healthy()) return DeviceLost();
  }
  std::optional<std::stop_source> gives_way;
  {
    MutexLock lock(mu_);
    if (draining_) return Draining();
    if (job_) {
      return ResourceExhausted(job_->name + " is running, and the limit is one at a time")
          .WithRetryAfter(kRetryWhenBusy);
    }
    job_ = std::move(job);
    gives_way = background_;
    changed_.NotifyAll();
  }
  if (gives_way) gives_way->request_stop();
  return OkStatus();
}

// --- The tuner's thread ---

void Tuner::Loop() {
  for (;;) {
    Job* job = nullptr;
    {
      MutexLock lock(mu_);
      while (background_ || (!job_ && !stopping_)) changed_.Wait(mu_);
      if (!job_) return;
      job = job_.get();  // nobody else takes it away
    }
    std::optional<Timeout> budget;
    if (job->budget) budget.emplace(SteadyClock::now() + *job->budget, job->stop);
    Status status = job->run(job->stop.get_token());
    const bool spent = budget && budget->passed();
    budget.reset();

    std::unique_ptr<Job> ended;
    TuningResult result = status.ok() ? TuningResult::kOk : TuningResult::kFailed;
    {
      MutexLock lock(mu_);
      if (status.code() == StatusCode::kCancelled) {
        result = draining_ ? TuningResult::kDrained
                 : spent   ? TuningResult::kBudget
                           : TuningResult::kCancelled;
        if (draining_) status = Draining();
        if (!draining_ && spent) status = OkStatus();
      }
      ended = std::move(job_);  // who hears of the end may start the next
      ending_ = true;
    }
    // The server ends: what it has learnt, it keeps or loses.
    if (ended->learns && status.code() == StatusCode::kUnavailable) {
      const std::chrono::milliseconds delay = status.retry_after().value_or(kRetryWhenAway);
      status = Unavailable(status.message() + "; " + WhereLearntIs()).WithRetryAfter(delay);
    }
    if (observer_ != nullptr) observer_->RunEnded(result);
    ended->done(std::move(status));
    ended.reset();
    MutexLock lock(mu_);
    ending_ = false;
    changed_.NotifyAll();
  }
}

std::string Tuner::WhereLearntIs() const {
  return save_ ? "what was measured is saved in " + saved_in_
               : "what was measured is lost with the server, which has no tuning file";
}

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
  const auto device = std::find_if(devices_.begin(), devices_.end(), [&](const TuningDevice& d) {
    return CheckRunnable(d, problem, constraints).ok();
  });
  if (device == devices_.end()) return Internal("no device runs " + ToString(problem));
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

// --- The end ---

std::string Tuner::running() const {
  MutexLock lock(mu_);
  return job_ ? job_->name : "";
}

void Tuner::StartDrain() {
  std::vector<std::stop_source> stops;
  {
    MutexLock lock(mu_);
    draining_ = true;
    if (job_) stops.push_back(job_->stop);
    if (background_) stops.push_back(*background_);
  }
  for (std::stop_source& stop : stops) stop.request_stop();
}

bool Tuner::WaitIdle(SteadyClock::time_point deadline) {
  MutexLock lock(mu_);
  const auto idle = [this]() REQUIRES(mu_) { return !job_ && !ending_ && !background_; };
  while (!idle()) {
    if (!changed_.WaitUntil(mu_, deadline)) return idle();
  }
  return true;
}

}  // namespace gemmd
