#include "tests/support/manual_backend.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

namespace gemmd::testing {

class ManualBackend::ManualLane : public Lane {
 public:
  ManualLane(ManualBackend* backend, int index) : backend_(backend), index_(index) {}
  int index() const override { return index_; }
  Status Submit(const GemmProblem& problem, const Plan&, const HostOperands&, Done done,
                std::stop_token stop) override {
    return backend_->SubmitOn(index_, problem, {std::move(done), std::move(stop)});
  }

 private:
  ManualBackend* const backend_;
  const int index_;
};

class ManualBackend::ManualTimer : public PlanTimer {
 public:
  ManualTimer(ManualBackend* backend, const GemmProblem& problem)
      : backend_(backend), problem_(problem) {}
  // A tuning has two passes: the first is the one that counts.
  StatusOr<std::vector<PlanTiming>> Time(std::span<const Plan> plans, const TimingOptions&,
                                         std::stop_token stop) override {
    if (!std::exchange(began_, true)) backend_->TimerBegan(problem_);
    return backend_->Time(plans, stop);
  }

 private:
  ManualBackend* const backend_;
  const GemmProblem problem_;
  bool began_ = false;
};

ManualBackend::ManualBackend(ManualBackendOptions options) : options_(std::move(options)) {
  for (int i = 0; i < options_.lanes; ++i) {
    lanes_.push_back(std::make_unique<ManualLane>(this, i));
  }
  MutexLock lock(mu_);
  lane_taken_.resize(static_cast<size_t>(options_.lanes));
}

ManualBackend::~ManualBackend() {
  MutexLock lock(mu_);
  if (!running_.empty() || used_bytes_ != 0) std::abort();  // a lease outlives its backend
}

Status ManualBackend::CheckFits(const GemmProblem& problem) const {
  ASSIGN_OR_RETURN(const int64_t bytes, ResultBytes(problem));
  if (bytes <= options_.memory_bytes) return OkStatus();
  return ResourceExhausted("the product needs " + std::to_string(bytes) + " bytes, there are " +
                           std::to_string(options_.memory_bytes));
}

std::optional<LaneLease> ManualBackend::TryAcquireLane(const GemmProblem& problem) {
  const StatusOr<int64_t> bytes = ResultBytes(problem);
  if (!bytes.ok()) std::abort();  // CheckFits() is the precondition
  MutexLock lock(mu_);
  const auto lane = std::find(lane_taken_.begin(), lane_taken_.end(), false);
  if (lane == lane_taken_.end() || used_bytes_ + *bytes > options_.memory_bytes) {
    ++refused_;
    changed_.NotifyAll();
    return std::nullopt;
  }
  *lane = true;
  used_bytes_ += *bytes;
  const int index = static_cast<int>(lane - lane_taken_.begin());
  return LaneLease(lanes_[static_cast<size_t>(index)].get(),
                   [this, index, held = *bytes](Lane*) { Release(index, held); });
}

void ManualBackend::Release(int lane, int64_t bytes) {
  std::function<void()> listener;
  {
    MutexLock lock(mu_);
    lane_taken_[static_cast<size_t>(lane)] = false;
    used_bytes_ -= bytes;
    listener = listener_;
  }
  if (listener) listener();
}

StatusOr<std::unique_ptr<PlanTimer>> ManualBackend::MakePlanTimer(const GemmProblem& problem) {
  MutexLock lock(mu_);
  if (next_timer_) return *std::exchange(next_timer_, std::nullopt);
  return std::unique_ptr<PlanTimer>(std::make_unique<ManualTimer>(this, problem));
}

void ManualBackend::TimerBegan(const GemmProblem& problem) {
  MutexLock lock(mu_);
  timed_.push_back(problem);
  changed_.NotifyAll();
}

StatusOr<std::vector<PlanTiming>> ManualBackend::Time(std::span<const Plan> plans,
                                                      const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(mu_);
    changed_.NotifyAll();
  });
  std::function<double(const Plan&)> seconds;
  {
    MutexLock lock(mu_);
    while (free_timers_ && timed_.size() > *free_timers_ && !stop.stop_requested()) {
      changed_.Wait(mu_);
    }
    seconds = plan_seconds_;
  }
  if (stop.stop_requested()) return Cancelled("the timer was stopped");
  std::vector<PlanTiming> timings;
  for (const Plan& plan : plans) {
    const double median = seconds ? seconds(plan) : 1e-3;
    timings.push_back({.median_seconds = median,
                       .p5_seconds = median * 0.9,
                       .p95_seconds = median * 1.1,
                       .stalls = {}});
  }
  return timings;
}

Status ManualBackend::CheckCalibrates() const {
  return options_.calibrates ? OkStatus() : Unimplemented("calibrate: not here");
}

StatusOr<Calibration> ManualBackend::Calibrate(std::stop_token stop) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(mu_);
    changed_.NotifyAll();
  });
  MutexLock lock(mu_);
  ++calibrations_;
  changed_.NotifyAll();
  while (hold_calibrations_ && !stop.stop_requested()) changed_.Wait(mu_);
  if (stop.stop_requested()) return Cancelled("the calibration was stopped");
  return calibration_;
}

void ManualBackend::SetReleaseListener(std::function<void()> listener) {
  MutexLock lock(mu_);
  listener_ = std::move(listener);
}

Status ManualBackend::SubmitOn(int lane, const GemmProblem& problem, Job job) {
  {
    MutexLock lock(mu_);
    if (!lane_taken_[static_cast<size_t>(lane)]) std::abort();  // Submit without a lease
    if (next_submit_) return *std::exchange(next_submit_, std::nullopt);
    problems_.push_back(problem);
    changed_.NotifyAll();
    if (!complete_at_once_) {
      running_.push_back(std::move(job));
      return OkStatus();
    }
  }
  job.done(LaneResult{});
  return OkStatus();
}

bool ManualBackend::CompleteNext(LaneResult result) {
  Job job;
  {
    MutexLock lock(mu_);
    if (running_.empty()) return false;
    job = std::move(running_.front());
    running_.pop_front();
  }
  job.done(std::move(result));
  return true;
}

void ManualBackend::CompleteAll() {
  {
    MutexLock lock(mu_);
    complete_at_once_ = true;
  }
  while (CompleteNext()) {
  }
}

void ManualBackend::FailNextSubmit(Status status) {
  MutexLock lock(mu_);
  next_submit_ = std::move(status);
}

void ManualBackend::SetHealthy(bool healthy) {
  MutexLock lock(mu_);
  healthy_ = healthy;
}

void ManualBackend::SetPlanSeconds(std::function<double(const Plan&)> seconds) {
  MutexLock lock(mu_);
  plan_seconds_ = std::move(seconds);
}

void ManualBackend::HoldTimers(size_t free) {
  MutexLock lock(mu_);
  free_timers_ = free;
}

void ManualBackend::ReleaseTimers() {
  MutexLock lock(mu_);
  free_timers_.reset();
  changed_.NotifyAll();
}

void ManualBackend::SetCalibration(StatusOr<Calibration> calibration) {
  MutexLock lock(mu_);
  calibration_ = std::move(calibration);
}

void ManualBackend::HoldCalibrations() {
  MutexLock lock(mu_);
  hold_calibrations_ = true;
}

void ManualBackend::WaitForCalibrations(int count) {
  MutexLock lock(mu_);
  while (calibrations_ < count) changed_.Wait(mu_);
}

int ManualBackend::calibrations() const {
  MutexLock lock(mu_);
  return calibrations_;
}

void ManualBackend::FailNextTimer(Status status) {
  MutexLock lock(mu_);
  next_timer_ = std::move(status);
}

void ManualBackend::WaitForStarted(int count) {
  MutexLock lock(mu_);
  while (static_cast<int>(problems_.size()) < count) changed_.Wait(mu_);
}

void ManualBackend::WaitForRefused(int count) {
  MutexLock lock(mu_);
  while (refused_ < count) changed_.Wait(mu_);
}

void ManualBackend::WaitForTimers(int count) {
  MutexLock lock(mu_);
  while (static_cast<int>(timed_.size()) < count) changed_.Wait(mu_);
}

bool ManualBackend::healthy() const {
  MutexLock lock(mu_);
  return healthy_;
}

BackendUsage ManualBackend::usage() const {
  MutexLock lock(mu_);
  BackendUsage usage;
  usage.lanes = options_.lanes;
  usage.lanes_in_use = static_cast<int>(std::count(lane_taken_.begin(), lane_taken_.end(), true));
  usage.device_pool_bytes = options_.memory_bytes;
  usage.device_pool_used_bytes = used_bytes_;
  return usage;
}

int ManualBackend::started() const {
  MutexLock lock(mu_);
  return static_cast<int>(problems_.size());
}

int ManualBackend::running() const {
  MutexLock lock(mu_);
  return static_cast<int>(running_.size());
}

int ManualBackend::stops_requested() const {
  MutexLock lock(mu_);
  return static_cast<int>(std::count_if(running_.begin(), running_.end(),
                                        [](const Job& job) { return job.stop.stop_requested(); }));
}

int ManualBackend::refused() const {
  MutexLock lock(mu_);
  return refused_;
}

std::vector<GemmProblem> ManualBackend::problems() const {
  MutexLock lock(mu_);
  return problems_;
}

std::vector<GemmProblem> ManualBackend::timed() const {
  MutexLock lock(mu_);
  return timed_;
}

}  // namespace gemmd::testing
