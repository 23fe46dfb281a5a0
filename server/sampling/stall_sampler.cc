#include "server/sampling/stall_sampler.h"

#include <algorithm>

namespace gemmd {

StallSampler::StallSampler(std::vector<Backend*> backends, const SamplingOptions& options,
                           std::function<void(const Backend&, const Status&)> on_failure)
    : backends_(std::move(backends)), options_(options), on_failure_(std::move(on_failure)) {
  {
    MutexLock reading(reading_);
    read_at_.assign(backends_.size(), Clock::now());
    MutexLock lock(mu_);
    last_.resize(backends_.size());
  }
  if (!options_.on) return;
  bool any = false;
  for (size_t i = 0; i < backends_.size(); ++i) {
    any = any || backends_[i]->sampler() != nullptr;
    if (backends_[i]->sampler() == nullptr) Note(i, backends_[i]->sampling_status());
  }
  if (any) thread_ = std::thread([this] { Loop(); });
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
  totals.up =
      options_.on && std::ranges::all_of(last_, [](const Status& status) { return status.ok(); });
  return totals;
}

StatusOr<PcSamples> StallSampler::Sample(Backend& backend, const std::function<Status()>& work) {
  const auto device =
      static_cast<size_t>(std::ranges::find(backends_, &backend) - backends_.begin());
  PcSampler* const sampler = backend.sampler();
  if (sampler == nullptr) return backend.sampling_status();
  MutexLock reading(reading_);
  PauseUntil(Clock::now() + sampler->delay());
  RETURN_IF_ERROR(Read(device).status());  // what ran before
  const Status status = work();
  PauseUntil(Clock::now() + sampler->delay());
  StatusOr<PcSamples> samples = Read(device);
  if (!status.ok()) return status;
  return samples;
}

void StallSampler::Loop() {
  const auto ending = [this] {
    MutexLock lock(mu_);
    return ending_;
  };
  while (true) {
    PauseUntil(Clock::now() + options_.period);
    if (ending()) return;
    MutexLock reading(reading_);
    for (size_t i = 0; i < backends_.size(); ++i) {
      if (backends_[i]->sampler() != nullptr) (void)Read(i);
    }
  }
}

void StallSampler::PauseUntil(Clock::time_point time) {
  MutexLock lock(mu_);
  while (!ending_ && Clock::now() < time) changed_.WaitUntil(mu_, time);
}

StatusOr<PcSamples> StallSampler::Read(size_t device) {
  PcSampler& sampler = *backends_[device]->sampler();
  StatusOr<PcSamples> samples = sampler.Read();
  const Clock::time_point now = Clock::now();
  const Nanoseconds sampled = now - std::exchange(read_at_[device], now);
  Note(device, samples.status());
  if (!samples.ok()) return samples;
  MutexLock lock(mu_);
  totals_.sampled += sampled;
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
