// A sampler of program counters that a test scripts.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/mutex.h"
#include "kernels/pc_sampler.h"

namespace gemmd::testing {

// Thread-safe. Aborts where a window is opened in a window, or ended outside of one, or left open.
class ManualSampler : public PcSampler {
 public:
  explicit ManualSampler(std::vector<std::string> reasons = {"long_scoreboard", "selected"})
      : reasons_(std::move(reasons)) {}
  ~ManualSampler() override {
    MutexLock lock(mu_);
    if (open_) std::abort();
  }

  const std::vector<std::string>& reasons() const override { return reasons_; }
  Status Start() override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    if (open_) std::abort();
    ++starts_;
    changed_.NotifyAll();
    open_ = start_.ok();
    return start_;
  }
  StatusOr<PcSamples> Stop() override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    if (!open_) std::abort();
    ++stops_;
    changed_.NotifyAll();
    open_ = false;
    return samples_;
  }

  // --- What the test says ---

  // What Start() returns from now on; else OK.
  void SetStart(Status status) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    start_ = std::move(status);
  }
  // What Stop() returns from now on; else no samples. The window is over either way.
  void SetSamples(StatusOr<PcSamples> samples) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    samples_ = std::move(samples);
  }
  // Blocks until Start(), which may have failed, was called `count` times in all.
  void WaitForStarts(int count) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    while (starts_ < count) changed_.Wait(mu_);
  }
  void WaitForStops(int count) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    while (stops_ < count) changed_.Wait(mu_);
  }
  int starts() const EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return starts_;
  }
  int stops() const EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return stops_;
  }

 private:
  const std::vector<std::string> reasons_;
  mutable Mutex mu_;
  CondVar changed_;
  Status start_ GUARDED_BY(mu_);
  StatusOr<PcSamples> samples_ GUARDED_BY(mu_) = PcSamples{};
  bool open_ GUARDED_BY(mu_) = false;
  int starts_ GUARDED_BY(mu_) = 0;
  int stops_ GUARDED_BY(mu_) = 0;
};

// Samples of one range of a function of `kernel`.
inline PcSamples SamplesOf(int kernel, std::vector<int64_t> by_reason) {
  PcSamples samples;
  samples.functions.push_back(
      {.kernel = kernel, .ranges = {{.range = {}, .by_reason = std::move(by_reason)}}});
  return samples;
}

}  // namespace gemmd::testing
