#include "server/tuning/background_tuner.h"

#include <algorithm>

namespace gemmd {
namespace {

// What is settled is forgotten when there is so much of it, and then looked up again.
constexpr size_t kMaxSettled = size_t{4} * Traffic::kMaxProblems;

}  // namespace

void ShareCap::Spent(SteadyClock::time_point start, SteadyClock::time_point end) {
  const std::chrono::duration<double> busy = end - start;
  may_start_ = end + std::chrono::duration_cast<SteadyClock::duration>(busy * (1.0 / share_ - 1.0));
}

BackgroundTuner::BackgroundTuner(const BackgroundOptions& options, Tuner* tuner, Traffic* traffic)
    : options_(options), tuner_(tuner), traffic_(traffic), cap_(options.share) {
  traffic_->SetListener([this] { TrafficChanged(); });
  thread_ = std::thread([this] { Loop(); });
}

BackgroundTuner::~BackgroundTuner() {
  traffic_->SetListener(nullptr);
  std::optional<std::stop_source> running;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    running = running_;
    changed_.NotifyAll();
  }
  if (running) running->request_stop();
  thread_.join();
}

void BackgroundTuner::TrafficChanged() {
  std::optional<std::stop_source> gives_way;
  {
    MutexLock lock(mu_);
    quiet_since_ = SteadyClock::now();
    news_ = true;
    if (!traffic_->idle()) gives_way = running_;
    changed_.NotifyAll();
  }
  if (gives_way) gives_way->request_stop();
}

// Waits until a measurement may start, and something new may have been served; false when this
// ends.
bool BackgroundTuner::WaitForQuiet() {
  MutexLock lock(mu_);
  while (!stopping_) {
    if (!news_ || !traffic_->idle()) {
      changed_.Wait(mu_);
      continue;
    }
    const SteadyClock::time_point due = std::max(quiet_since_ + options_.quiet, cap_.may_start());
    if (due <= SteadyClock::now()) {
      news_ = false;
      return true;
    }
    changed_.WaitUntil(mu_, due);
  }
  return false;
}

std::optional<GemmProblem> BackgroundTuner::NextProblem() {
  if (settled_.size() > kMaxSettled) settled_.clear();
  for (const GemmProblem& problem : traffic_->MostServed()) {
    if (settled_.contains(problem)) continue;
    if (!tuner_->IsMeasured(problem)) return problem;
    settled_.insert(problem);
  }
  return std::nullopt;
}

void BackgroundTuner::Loop() {
  while (WaitForQuiet()) {
    const std::optional<GemmProblem> problem = NextProblem();
    if (!problem) continue;  // until something is served
    std::stop_source stop;
    {
      MutexLock lock(mu_);
      news_ = true;  // there may be more to measure than this one
      if (stopping_ || !traffic_->idle()) continue;
      running_ = stop;
    }
    const SteadyClock::time_point start = SteadyClock::now();
    const Status status = tuner_->TuneInBackground(*problem, stop);
    const SteadyClock::time_point end = SteadyClock::now();
    cap_.Spent(start, end);
    if (status.code() != StatusCode::kCancelled) settled_.insert(*problem);
    MutexLock lock(mu_);
    running_.reset();
    // A tuner that is busy is asked again later.
    if (status.code() == StatusCode::kCancelled) quiet_since_ = std::max(quiet_since_, end);
  }
}

}  // namespace gemmd
