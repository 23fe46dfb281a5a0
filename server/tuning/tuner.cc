#include "server/tuning/tuner.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "kernels/core/text.h"
#include "server/engine/retry.h"

namespace gemmd {
namespace {

constexpr std::chrono::milliseconds kRetryWhenBusy{1000};

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

std::string ProblemCount(const TuningRun& run) {
  return Count(static_cast<int64_t>(run.problems.size()), "problem");
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

Status Tuner::DeviceLost() {
  return Unavailable("device lost, the server must restart").WithRetryAfter(kRetryWhenAway);
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

Tuner::Tuner(std::vector<TuningDevice> devices, Save save, TuningObserver* observer,
             std::string saved_in, StallSampler* sampler)
    : devices_(std::move(devices)),
      save_(std::move(save)),
      saved_in_(std::move(saved_in)),
      observer_(observer),
      sampler_(sampler) {
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

Status Tuner::CheckProblem(const GemmProblem& problem, const PlanConstraints& constraints) const {
  if (problem.empty()) {
    return InvalidArgument("problem",
                           "m, n or batch is 0, and nothing takes no time; the least is 1");
  }
  Status first;
  for (const TuningDevice& device : devices_) {
    Status status = CheckRunnable(device, problem, constraints);
    if (status.ok()) return status;
    if (first.ok()) first = std::move(status);
  }
  return first;
}

StatusOr<const TuningDevice*> Tuner::DeviceFor(const GemmProblem& problem,
                                               const PlanConstraints& constraints) const {
  for (const TuningDevice& device : devices_) {
    if (CheckRunnable(device, problem, constraints).ok()) return &device;
  }
  return Internal("no device runs " + ToString(problem));
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
    Status status = CheckProblem(run.problems[static_cast<size_t>(i)], constraints);
    if (!status.ok()) return AboutProblem(i, status);
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

Status Tuner::Profile(ProfileRun run) {
  if (run.problems.size() != 1) return InvalidArgument("problem", "a profile is of one problem");
  const GemmProblem& problem = run.problems.front();
  RETURN_IF_ERROR(CheckProblem(problem, run.constraints));
  ASSIGN_OR_RETURN(const TuningDevice* const device, DeviceFor(problem, run.constraints));
  if (device->backend->sampler() == nullptr) return device->backend->sampling_status();
  if (sampler_ == nullptr) return FailedPrecondition("this tuner has no sampler");
  auto job = std::make_unique<Job>();
  job->name = "a profile";
  job->stop = run.stop;
  job->done = std::move(run.done);
  job->run = [this, run = std::move(run)](const std::stop_token& stop) {
    return RunProfile(run, stop);
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
