// Another backend's lanes, with faults at chosen products.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/core/mutex.h"

namespace gemmd::testing {

// Products are counted from 1 in the order of their Submit. Thread-safe; set faults up before the
// first product.
class FaultInjectionBackend : public Backend {
 public:
  explicit FaultInjectionBackend(Backend* inner) : inner_(inner) {}  // outlives this

  // Submit of that product returns RESOURCE_EXHAUSTED, as when device memory has run out.
  void OutOfMemoryAt(int product) EXCLUDES(mu_);
  // That product runs and ends with INTERNAL; the device stays usable.
  void DeviceErrorAt(int product) EXCLUDES(mu_);
  // As DeviceErrorAt, and the device is lost: unhealthy, all that runs then fails, and no Submit of
  // later succeeds.
  void StickyErrorAt(int product) EXCLUDES(mu_);

  std::string_view name() const override { return inner_->name(); }
  const DeviceTraits& traits() const override { return inner_->traits(); }
  Status CheckFits(const GemmProblem& problem) const override { return inner_->CheckFits(problem); }
  Status CheckTimable(const GemmProblem& problem) const override {
    return inner_->CheckTimable(problem);
  }
  std::optional<LaneLease> TryAcquireLane(const GemmProblem& problem) override;
  StatusOr<std::unique_ptr<PlanTimer>> MakePlanTimer(const GemmProblem& problem) override {
    return inner_->MakePlanTimer(problem);
  }
  Status CheckCalibrates() const override { return inner_->CheckCalibrates(); }
  StatusOr<Calibration> Calibrate(std::stop_token stop) override {
    return inner_->Calibrate(std::move(stop));
  }
  PcSampler* sampler() override { return inner_->sampler(); }
  Status sampling_status() const override { return inner_->sampling_status(); }
  void SetReleaseListener(std::function<void()> listener) override {
    inner_->SetReleaseListener(std::move(listener));
  }
  bool healthy() const override EXCLUDES(mu_);
  BackendUsage usage() const override { return inner_->usage(); }

 private:
  class FaultyLane;
  enum class Fault { kNone, kOutOfMemory, kDeviceError, kSticky };

  Fault NextFault() EXCLUDES(mu_);
  void Spoil(Fault fault, LaneResult* result) EXCLUDES(mu_);

  Backend* const inner_;
  mutable Mutex mu_;
  std::map<int, Fault> faults_ GUARDED_BY(mu_);
  int products_ GUARDED_BY(mu_) = 0;
  bool lost_ GUARDED_BY(mu_) = false;
};

}  // namespace gemmd::testing
