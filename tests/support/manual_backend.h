// A backend that does nothing by itself: work on its lanes ends when the test says so, and its
// timers answer what the test says.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/mutex.h"

namespace gemmd::testing {

struct ManualBackendOptions {
  int lanes = 1;
  // A problem takes ResultBytes() of it while it has a lane.
  int64_t memory_bytes = int64_t{1} << 40;
  DeviceTraits traits = CpuTraits();
  bool calibrates = true;
  std::shared_ptr<PcSampler> sampler = nullptr;  // null: none, and sampling_status says why
  Status sampling_status = Unimplemented("no program counters here");
};

// Thread-safe. Results are never written: D keeps what it had.
class ManualBackend : public Backend {
 public:
  explicit ManualBackend(ManualBackendOptions options = {});
  ~ManualBackend() override;  // nothing may run on a lane any more

  std::string_view name() const override { return "manual"; }
  const DeviceTraits& traits() const override { return options_.traits; }
  Status CheckFits(const GemmProblem& problem) const override;
  std::optional<LaneLease> TryAcquireLane(const GemmProblem& problem) override EXCLUDES(mu_);
  StatusOr<std::unique_ptr<PlanTimer>> MakePlanTimer(const GemmProblem& problem) override
      EXCLUDES(mu_);
  Status CheckCalibrates() const override;
  StatusOr<Calibration> Calibrate(std::stop_token stop) override EXCLUDES(mu_);
  PcSampler* sampler() override { return options_.sampler.get(); }
  Status sampling_status() const override {
    return options_.sampler ? OkStatus() : options_.sampling_status;
  }
  void SetReleaseListener(std::function<void()> listener) override EXCLUDES(mu_);
  bool healthy() const override EXCLUDES(mu_);
  BackendUsage usage() const override EXCLUDES(mu_);

  // --- What the test says ---

  // Ends the oldest running product, on the calling thread. False when nothing runs.
  bool CompleteNext(LaneResult result = {}) EXCLUDES(mu_);
  // From now on every Submit ends at once, on the submitting thread; what runs now ends too.
  void CompleteAll() EXCLUDES(mu_);
  // The next Submit returns `status` and starts nothing.
  void FailNextSubmit(Status status) EXCLUDES(mu_);
  void SetHealthy(bool healthy) EXCLUDES(mu_);
  // What a timer says of a plan from now on; else it is 1 ms.
  void SetPlanSeconds(std::function<double(const Plan&)> seconds) EXCLUDES(mu_);
  // From now on all timers but the first `free` ever measure on until they are released or asked
  // to stop.
  void HoldTimers(size_t free = 0) EXCLUDES(mu_);
  void ReleaseTimers() EXCLUDES(mu_);
  // What Calibrate() returns from now on; else it is kH200Calibration.
  void SetCalibration(StatusOr<Calibration> calibration) EXCLUDES(mu_);
  // From now on Calibrate() measures on until it is asked to stop.
  void HoldCalibrations() EXCLUDES(mu_);
  // The next MakePlanTimer returns `status`.
  void FailNextTimer(Status status) EXCLUDES(mu_);
  // Blocks until `count` products in all have been started on lanes.
  void WaitForStarted(int count) EXCLUDES(mu_);
  // Blocks until a lane has been asked for in vain `count` times in all.
  void WaitForRefused(int count) EXCLUDES(mu_);
  // Blocks until `count` timers in all have begun to measure.
  void WaitForTimers(int count) EXCLUDES(mu_);
  // Blocks until Calibrate() has been called `count` times in all.
  void WaitForCalibrations(int count) EXCLUDES(mu_);

  int started() const EXCLUDES(mu_);
  int running() const EXCLUDES(mu_);
  // Running products that were asked to stop. They run on: the test ends them as it likes.
  int stops_requested() const EXCLUDES(mu_);
  int refused() const EXCLUDES(mu_);
  // Of every product started so far, in order.
  std::vector<GemmProblem> problems() const EXCLUDES(mu_);
  int calibrations() const EXCLUDES(mu_);  // that were begun
  // Of every timer that began to measure, in order.
  std::vector<GemmProblem> timed() const EXCLUDES(mu_);

 private:
  class ManualLane;
  class ManualTimer;

  struct Job {
    Lane::Done done;
    std::stop_token stop;
  };

  Status SubmitOn(int lane, const GemmProblem& problem, Job job) EXCLUDES(mu_);
  void TimerBegan(const GemmProblem& problem) EXCLUDES(mu_);
  StatusOr<std::vector<PlanTiming>> Time(std::span<const Plan> plans, const std::stop_token& stop)
      EXCLUDES(mu_);
  void Release(int lane, int64_t bytes) EXCLUDES(mu_);

  const ManualBackendOptions options_;
  mutable Mutex mu_;
  CondVar changed_;
  std::vector<std::unique_ptr<ManualLane>> lanes_;  // constant once constructed
  std::vector<bool> lane_taken_ GUARDED_BY(mu_);
  int64_t used_bytes_ GUARDED_BY(mu_) = 0;
  std::deque<Job> running_ GUARDED_BY(mu_);
  std::vector<GemmProblem> problems_ GUARDED_BY(mu_);
  int refused_ GUARDED_BY(mu_) = 0;
  bool healthy_ GUARDED_BY(mu_) = true;
  bool complete_at_once_ GUARDED_BY(mu_) = false;
  std::optional<Status> next_submit_ GUARDED_BY(mu_);
  std::function<double(const Plan&)> plan_seconds_ GUARDED_BY(mu_);
  std::vector<GemmProblem> timed_ GUARDED_BY(mu_);
  std::optional<size_t> free_timers_ GUARDED_BY(mu_);  // nullopt: none is held
  std::optional<Status> next_timer_ GUARDED_BY(mu_);
  StatusOr<Calibration> calibration_ GUARDED_BY(mu_) = kH200Calibration;
  bool hold_calibrations_ GUARDED_BY(mu_) = false;
  int calibrations_ GUARDED_BY(mu_) = 0;
  std::function<void()> listener_ GUARDED_BY(mu_);
};

}  // namespace gemmd::testing
