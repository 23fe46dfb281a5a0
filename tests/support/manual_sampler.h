// A sampler of program counters that a test scripts.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/core/mutex.h"
#include "kernels/pc_sampler.h"

namespace gemmd::testing {

// Thread-safe. Aborts where two read at once.
class ManualSampler : public PcSampler {
 public:
  explicit ManualSampler(std::vector<std::string> reasons = {"long_scoreboard", "selected"})
      : reasons_(std::move(reasons)) {}

  const std::vector<std::string>& reasons() const override { return reasons_; }
  StatusOr<PcSamples> Read() override EXCLUDES(mu_) {
    if (reading_.exchange(true)) std::abort();
    std::this_thread::yield();  // for another to be caught
    StatusOr<PcSamples> answer = Answer();
    reading_ = false;
    return answer;
  }
  std::chrono::milliseconds delay() const override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return delay_;
  }

  // --- What the test says ---

  // What Read() returns from now on, but for what AnswerNext() said; else no samples.
  void SetSamples(StatusOr<PcSamples> samples) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    samples_ = std::move(samples);
  }
  // What one Read() returns, after those that were said before.
  void AnswerNext(StatusOr<PcSamples> samples) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    next_.push_back(std::move(samples));
  }
  void SetDelay(std::chrono::milliseconds delay) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    delay_ = delay;
  }
  // Blocks until Read(), which may have failed, was called `count` times in all.
  void WaitForReads(int count) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    while (reads_ < count) changed_.Wait(mu_);
  }
  int reads() const EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return reads_;
  }

 private:
  StatusOr<PcSamples> Answer() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    ++reads_;
    changed_.NotifyAll();
    if (next_.empty()) return samples_;
    StatusOr<PcSamples> answer = std::move(next_.front());
    next_.pop_front();
    return answer;
  }

  const std::vector<std::string> reasons_;
  std::atomic<bool> reading_ = false;
  mutable Mutex mu_;
  CondVar changed_;
  StatusOr<PcSamples> samples_ GUARDED_BY(mu_) = PcSamples{};
  std::deque<StatusOr<PcSamples>> next_ GUARDED_BY(mu_);
  std::chrono::milliseconds delay_ GUARDED_BY(mu_){0};
  int reads_ GUARDED_BY(mu_) = 0;
};

// Samples of one range of a function of `kernel`.
inline PcSamples SamplesOf(int kernel, std::vector<int64_t> by_reason) {
  PcSamples samples;
  samples.functions.push_back(
      {.kernel = kernel, .ranges = {{.range = {}, .by_reason = std::move(by_reason)}}});
  return samples;
}

}  // namespace gemmd::testing
