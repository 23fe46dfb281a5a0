#include "server/sampling/stall_sampler.h"

#include <algorithm>

namespace gemmd {

StallSampler::StallSampler(std::vector<Backend*> backends, const SamplingOptions& options,
                           std::function<void(const Backend&, const Status&)> on_failure)
    : backends_(std::move(backends)), options_(options), on_failure_(std::move(on_failure)) {
  bool any = false;
  {
    MutexLock lock(mu_);
    last_.resize(backends_.size());
  }
  for (size_t i = 0; i < backends_.size(); ++i) {
    if (backends_[i]->sampler() != nullptr) {
      any = true;
    } else if (options_.share > 0) {
      Note(i, backends_[i]->sampling_status());
    }
  }
  if (any && options_.share > 0) thread_ = std::thread([this] { Loop(); });
}

StallSampler::~StallSampler() {
  {
    MutexLock lock(mu_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

StallTotals StallSampler::totals() const {
  MutexLock lock(mu_);
  StallTotals totals = totals_;
  totals.up = options_.share > 0 &&
              std::ranges::all_of(last_, [](const Status& status) { return status.ok(); });
  return totals;
}

StatusOr<PcSamples> StallSampler::Sample(Backend& backend, const std::function<Status()>& work) {
  const auto device =
      static_cast<size_t>(std::ranges::find(backends_, &backend) - backends_.begin());
  PcSampler* const sampler = backend.sampler();
  if (sampler == nullptr) return backend.sampling_status();
  Open();
  Status status = sampler->Start();
  const Clock::time_point start = Clock::now();
  if (!status.ok()) {
    Note(device, status);
    Close();
    return status;
  }
  status = work();
  StatusOr<PcSamples> samples = Stop(device, start);
  Close();
  if (!status.ok()) return status;
  return samples;
}

// --- Windows ---

bool StallSampler::OpenOwn() {
  MutexLock lock(mu_);
  while ((open_ || waiting_ > 0) && !ending_) changed_.Wait(mu_);
  if (ending_) return false;
  open_ = true;
  return true;
}

void StallSampler::Open() {
  MutexLock lock(mu_);
  ++waiting_;
  changed_.NotifyAll();
  while (open_) changed_.Wait(mu_);
  --waiting_;
  open_ = true;
}

void StallSampler::Close() {
  MutexLock lock(mu_);
  open_ = false;
  changed_.NotifyAll();
}

void StallSampler::Loop() {
  const std::chrono::duration<double> length = options_.period * options_.share;
  while (OpenOwn()) {
    const Clock::time_point start = Clock::now();
    SampleAll(std::chrono::duration_cast<Clock::duration>(length));
    Close();
    if (options_.share < 1) PauseUntil(start + options_.period, false);
  }
}

void StallSampler::SampleAll(Clock::duration length) {
  std::vector<std::pair<size_t, Clock::time_point>> started;
  for (size_t i = 0; i < backends_.size(); ++i) {
    PcSampler* const sampler = backends_[i]->sampler();
    if (sampler == nullptr) continue;
    const Status status = sampler->Start();
    if (status.ok()) started.emplace_back(i, Clock::now());
    if (!status.ok()) Note(i, status);
  }
  PauseUntil(Clock::now() + length, true);
  for (const auto& [device, start] : started) (void)Stop(device, start);
  if (started.empty()) PauseUntil(Clock::now() + options_.period, true);  // nothing works: no hurry
}

void StallSampler::PauseUntil(Clock::time_point time, bool yield) {
  MutexLock lock(mu_);
  while (!ending_ && !(yield && waiting_ > 0) && Clock::now() < time) changed_.WaitUntil(mu_, time);
}

StatusOr<PcSamples> StallSampler::Stop(size_t device, Clock::time_point start) {
  PcSampler& sampler = *backends_[device]->sampler();
  const Nanoseconds length = Clock::now() - start;
  StatusOr<PcSamples> samples = sampler.Stop();
  Note(device, samples.status());
  if (!samples.ok()) return samples;
  MutexLock lock(mu_);
  totals_.sampled += length;
  totals_.dropped += samples->dropped;
  for (const FunctionSamples& function : samples->functions) {
    for (const RangeSamples& range : function.ranges) {
      for (size_t i = 0; i < range.by_reason.size(); ++i) {
        if (range.by_reason[i] <= 0) continue;
        totals_.samples[{function.kernel, sampler.reasons()[i]}] += range.by_reason[i];
      }
    }
  }
  return samples;
}

void StallSampler::Note(size_t device, const Status& status) {
  bool news = false;
  {
    MutexLock lock(mu_);
    news = last_[device].ok() && !status.ok();
    last_[device] = status;
  }
  if (news && on_failure_) on_failure_(*backends_[device], status);
}

}  // namespace gemmd
