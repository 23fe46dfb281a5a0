// Adds up what the samplers of all devices see their kernels wait for.
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
  bool on = false;                         // else only what Sample() is asked for is read
  std::chrono::milliseconds period{1000};  // from one reading of the devices to the next
};

struct StallTotals {
  bool up = false;         // on, and the last reading of every device went well
  Nanoseconds sampled{0};  // over all devices
  int64_t dropped = 0;     // samples that the hardware had no room for
  std::map<std::pair<int, std::string>, int64_t> samples;  // by kernel and reason; above 0
};

class StallSampler {  // Thread-safe.
 public:
  // The backends outlive it. `on_failure` hears of a device that cannot be sampled, on any thread:
  // of the first failure after a success, and where `on` of a device without a sampler.
  StallSampler(std::vector<Backend*> backends, const SamplingOptions& options,
               std::function<void(const Backend&, const Status&)> on_failure);
  ~StallSampler();  // no Sample() runs any more
  StallSampler(const StallSampler&) = delete;
  StallSampler& operator=(const StallSampler&) = delete;

  StallTotals totals() const EXCLUDES(mu_);

  // What `backend`, one of those given, is sampled of while `work` runs; the totals have it too. No
  // device is read meanwhile, which loses nothing. Else `work`'s error, the sampler's, or
  // sampling_status() of a backend without one.
  StatusOr<PcSamples> Sample(Backend& backend, const std::function<Status()>& work)
      EXCLUDES(reading_, mu_);

 private:
  using Clock = std::chrono::steady_clock;

  void Loop() EXCLUDES(reading_, mu_);  // the thread's
  // Returns at the end at once.
  void PauseUntil(Clock::time_point time) EXCLUDES(mu_);
  // Counts what there is since the last reading.
  StatusOr<PcSamples> Read(size_t device) REQUIRES(reading_) EXCLUDES(mu_);
  void Note(size_t device, const Status& status) EXCLUDES(mu_);

  const std::vector<Backend*> backends_;
  const SamplingOptions options_;
  const std::function<void(const Backend&, const Status&)> on_failure_;

  Mutex reading_;  // whose holder's the samples are; before mu_
  std::vector<Clock::time_point> read_at_ GUARDED_BY(reading_);  // of each backend

  mutable Mutex mu_;
  CondVar changed_;
  std::vector<Status> last_ GUARDED_BY(mu_);  // of each backend's sampling
  StallTotals totals_ GUARDED_BY(mu_);        // all but `up`
  bool ending_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // none where there is nothing to do
};

}  // namespace gemmd
