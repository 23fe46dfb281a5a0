#include "tests/support/fault_injection_backend.h"

#include <memory>
#include <utility>

namespace gemmd::testing {

// Lives as long as its lease.
class FaultInjectionBackend::FaultyLane : public Lane {
 public:
  FaultyLane(FaultInjectionBackend* backend, LaneLease inner)
      : backend_(backend), inner_(std::move(inner)) {}

  int index() const override { return inner_->index(); }

  Status Submit(const GemmProblem& problem, const Plan& plan, const HostOperands& operands,
                Done done, std::stop_token stop) override {
    if (!backend_->healthy()) return Internal("injected: device lost");
    const Fault fault = backend_->NextFault();
    if (fault == Fault::kOutOfMemory) return ResourceExhausted("injected: out of device memory");
    return inner_->Submit(
        problem, plan, operands,
        [backend = backend_, fault, done = std::move(done)](LaneResult result) {
          backend->Spoil(fault, &result);
          done(std::move(result));
        },
        std::move(stop));
  }

 private:
  FaultInjectionBackend* const backend_;
  LaneLease inner_;
};

std::optional<LaneLease> FaultInjectionBackend::TryAcquireLane(const GemmProblem& problem) {
  std::optional<LaneLease> inner = inner_->TryAcquireLane(problem);
  if (!inner) return std::nullopt;
  return LaneLease(new FaultyLane(this, *std::move(inner)), [](Lane* lane) { delete lane; });
}

void FaultInjectionBackend::OutOfMemoryAt(int product) {
  MutexLock lock(mu_);
  faults_[product] = Fault::kOutOfMemory;
}

void FaultInjectionBackend::DeviceErrorAt(int product) {
  MutexLock lock(mu_);
  faults_[product] = Fault::kDeviceError;
}

void FaultInjectionBackend::StickyErrorAt(int product) {
  MutexLock lock(mu_);
  faults_[product] = Fault::kSticky;
}

FaultInjectionBackend::Fault FaultInjectionBackend::NextFault() {
  MutexLock lock(mu_);
  const auto fault = faults_.find(++products_);
  return fault == faults_.end() ? Fault::kNone : fault->second;
}

void FaultInjectionBackend::Spoil(Fault fault, LaneResult* result) {
  MutexLock lock(mu_);
  if (fault == Fault::kSticky) lost_ = true;
  if (fault != Fault::kNone || lost_) result->status = Internal("injected: device error");
}

bool FaultInjectionBackend::healthy() const {
  if (!inner_->healthy()) return false;
  MutexLock lock(mu_);
  return !lost_;
}

}  // namespace gemmd::testing
