// Samples what the kernels of all devices wait for, for a part of every second, and adds it up.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/mutex.h"
#include "kernels/core/timing.h"
#include "kernels/pc_sampler.h"

namespace gemmd {

struct SamplingOptions {
  double share = 0;  // of wall time, 0 to 1; 0: only while Sample() runs
  std::chrono::milliseconds period{1000};
};

struct StallTotals {
  bool up = false;         // share > 0, and the last window of every device was read
  Nanoseconds sampled{0};  // over all devices
  int64_t dropped = 0;     // samples that the hardware had no room for
  std::map<std::pair<int, std::string>, int64_t> samples;  // by kernel and reason; above 0
};

class StallSampler {  // Thread-safe.
 public:
  // The backends outlive it. `on_failure` hears of a device that cannot be sampled, on any thread:
  // of the first failure after a success, and where share > 0 of a device without a sampler.
  StallSampler(std::vector<Backend*> backends, const SamplingOptions& options,
               std::function<void(const Backend&, const Status&)> on_failure);
  ~StallSampler();
  StallSampler(const StallSampler&) = delete;
  StallSampler& operator=(const StallSampler&) = delete;

  StallTotals totals() const EXCLUDES(mu_);

  // What `backend`, one of those given, is sampled of while `work` runs; the totals have it too.
  // The thread's windows wait meanwhile, and the one that is open ends early. Else `work`'s error,
  // the sampler's, or sampling_status() of a backend without one.
  StatusOr<PcSamples> Sample(Backend& backend, const std::function<Status()>& work) EXCLUDES(mu_);

 private:
  using Clock = std::chrono::steady_clock;

  // A window: whoever has it open uses the samplers. The thread's comes after all others that wait;
  // false when the sampler ends first.
  bool OpenOwn() EXCLUDES(mu_);
  void Open() EXCLUDES(mu_);
  void Close() EXCLUDES(mu_);

  void Loop() EXCLUDES(mu_);  // the thread's
  void SampleAll(Clock::duration length) EXCLUDES(mu_);
  // Returns early at the end, and where `yield` as soon as somebody waits for a window.
  void PauseUntil(Clock::time_point time, bool yield) EXCLUDES(mu_);
  // Ends what began at `start`, and counts it.
  StatusOr<PcSamples> Stop(size_t device, Clock::time_point start) EXCLUDES(mu_);
  void Note(size_t device, const Status& status) EXCLUDES(mu_);

  const std::vector<Backend*> backends_;
  const SamplingOptions options_;
  const std::function<void(const Backend&, const Status&)> on_failure_;

  mutable Mutex mu_;
  CondVar changed_;
  std::vector<Status> last_ GUARDED_BY(mu_);  // of each backend's sampling
  StallTotals totals_ GUARDED_BY(mu_);        // all but `up`
  bool open_ GUARDED_BY(mu_) = false;
  int waiting_ GUARDED_BY(mu_) = 0;  // in Open()
  bool ending_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // none where there is nothing to do
};

}  // namespace gemmd
