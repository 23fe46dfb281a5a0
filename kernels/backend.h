// The seam between the engine and whatever multiplies: one Backend a device, a bounded pool of
// Lanes in each. Below it are kernels/cuda and kernels/cpu; above it nothing knows which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

#include "kernels/core/calibration.h"
#include "kernels/core/device_traits.h"
#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/core/timing.h"
#include "kernels/pc_sampler.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_timer.h"

namespace gemmd {

struct LaneResult {
  Status status;     // OK: every element of D was written. CANCELLED: stopped, D is unspecified
  PhaseTimes times;  // stage .. unstage
  StallSample stalls;
};

// One GEMM at a time. Owned by a Backend; used by one holder of a LaneLease.
class Lane {
 public:
  // Runs exactly once, on a thread of the backend; must not block. The lane's lease may be
  // destroyed inside it.
  using Done = std::function<void(LaneResult)>;

  virtual ~Lane() = default;
  virtual int index() const = 0;  // within its backend: 0 .. lanes - 1

  // On OK `done` runs exactly once; operands must live until then. On error `done` never runs, the
  // operands are no longer used, and the lane stays usable unless Backend::healthy() is false.
  // May block for as long as copying the operands into the lane's staging memory takes.
  //
  // A request on `stop` asks for an early end, at best effort: `done` then gets CANCELLED where the
  // product was given up, and its result where it ended all the same. A backend may ignore it.
  virtual Status Submit(const GemmProblem& problem, const Plan& plan, const HostOperands& operands,
                        Done done, std::stop_token stop) = 0;
};

// Exclusive use of a lane, with the memory that one problem needs. Gives both back when destroyed.
class LaneLease {
 public:
  using Release = std::function<void(Lane*)>;

  LaneLease() = default;
  LaneLease(Lane* lane, Release release) : lane_(lane), release_(std::move(release)) {}
  LaneLease(LaneLease&& other) noexcept { *this = std::move(other); }
  LaneLease& operator=(LaneLease&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    lane_ = std::exchange(other.lane_, nullptr);
    release_ = std::exchange(other.release_, nullptr);
    return *this;
  }
  ~LaneLease() { Reset(); }

  Lane* operator->() const { return lane_; }
  explicit operator bool() const { return lane_ != nullptr; }
  void Reset() {
    if (lane_ != nullptr) release_(std::exchange(lane_, nullptr));
  }

 private:
  Lane* lane_ = nullptr;
  Release release_;
};

struct BackendUsage {
  int lanes = 0;
  int lanes_in_use = 0;
  int64_t device_pool_bytes = 0;  // 0 for a CPU
  int64_t device_pool_used_bytes = 0;
  int64_t pinned_pool_bytes = 0;
  int64_t pinned_pool_used_bytes = 0;
};

class Backend {  // Thread-safe. Outlives every lease.
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  // "cuda" or "cpu"
  virtual const DeviceTraits& traits() const = 0;

  // RESOURCE_EXHAUSTED when the problem can never fit this backend's memory, naming the bytes it
  // needs and the bytes there are; else OK. Allocates nothing.
  virtual Status CheckFits(const GemmProblem& problem) const = 0;

  // For tuning: as CheckFits, of a timer. Its operands come in no message whose limit bounds them,
  // so that a backend may set one of its own.
  virtual Status CheckTimable(const GemmProblem& problem) const { return CheckFits(problem); }

  // A lane with the memory for `problem`, or nullopt while all lanes or too much memory are in use.
  // Precondition: CheckFits(problem) is OK.
  virtual std::optional<LaneLease> TryAcquireLane(const GemmProblem& problem) = 0;

  // For tuning. RESOURCE_EXHAUSTED when the memory that it needs, which is the problem's operands
  // or a few times the caches, is not there now, naming the bytes. The timer shares the device with
  // the lanes. Precondition: CheckTimable(problem) is OK and the problem is not empty.
  virtual StatusOr<std::unique_ptr<PlanTimer>> MakePlanTimer(const GemmProblem& problem) = 0;

  // UNIMPLEMENTED (field calibrate) where there is no model to calibrate.
  virtual Status CheckCalibrates() const { return OkStatus(); }

  // Measures what the planner's model takes from this device, in a second or so; shares it with the
  // lanes. CANCELLED soon after a request on `stop`; INTERNAL where what was measured cannot be.
  // Precondition: CheckCalibrates() is OK.
  virtual StatusOr<Calibration> Calibrate(std::stop_token stop) = 0;

  // Null where there is none, and sampling_status() says why. Owned by the backend.
  virtual PcSampler* sampler() { return nullptr; }
  // UNIMPLEMENTED where kernels have no program counters to sample; FAILED_PRECONDITION where it
  // was not asked for, or another profiler is attached; UNAVAILABLE and PERMISSION_DENIED as the
  // library and the driver have it.
  virtual Status sampling_status() const {
    return Unimplemented("the " + std::string(name()) +
                         " backend has no program counters to sample");
  }

  // Called after every release of a lease, from the releasing thread, with no lock held. Set once,
  // before the first lease.
  virtual void SetReleaseListener(std::function<void()> listener) = 0;

  // False after a device error from which the process cannot recover; never true again.
  virtual bool healthy() const = 0;

  virtual BackendUsage usage() const = 0;
};

}  // namespace gemmd
