#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <unistd.h>

#include "kernels/core/checked.h"
#include "kernels/core/mutex.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_plan_timer.h"

namespace gemmd {
namespace {

constexpr int kMaxLanes = 64;
constexpr int kMaxThreads = 1024;

struct Job {
  GemmProblem problem;
  HostOperands operands;
  Lane::Done done;
  std::stop_token stop;
};

// Thread-safe. Its thread runs from construction to destruction, which finishes a job in flight.
class CpuLane final : public Lane {
 public:
  explicit CpuLane(int index) : index_(index), worker_([this] { Work(); }) {}
  ~CpuLane() override {
    {
      MutexLock lock(mu_);
      stopping_ = true;
    }
    wake_.NotifyOne();
    worker_.join();
  }

  int index() const override { return index_; }

  Status Submit(const GemmProblem& problem, const Plan& /*plan*/, const HostOperands& operands,
                Done done, std::stop_token stop) override {
    {
      MutexLock lock(mu_);
      if (job_) {
        return Internal("lane " + std::to_string(index_) + " was given a second product at once");
      }
      job_ = Job{problem, operands, std::move(done), std::move(stop)};
    }
    wake_.NotifyOne();
    return OkStatus();
  }

 private:
  void Work() {
    while (std::optional<Job> job = Next()) {
      const auto start = std::chrono::steady_clock::now();
      LaneResult result;
      result.status = gemm_.Run(job->problem, job->operands, job->stop);
      result.times.kernel = std::chrono::steady_clock::now() - start;
      job->done(std::move(result));
    }
  }

  // nullopt when the lane is stopping.
  std::optional<Job> Next() {
    MutexLock lock(mu_);
    while (!job_ && !stopping_) wake_.Wait(mu_);
    return std::exchange(job_, std::nullopt);
  }

  const int index_;
  CpuGemm gemm_;  // confined to worker_
  Mutex mu_;
  CondVar wake_;
  std::optional<Job> job_ GUARDED_BY(mu_);  // submitted, not yet taken by worker_
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread worker_;  // last: it uses all of the above
};

// Of what the problem reads and writes; nullopt past 2^63 - 1.
std::optional<int64_t> BytesOf(const GemmProblem& p) {
  std::optional<int64_t> total = 0;
  const auto add = [&](const StatusOr<int64_t>& bytes) {
    total = bytes.ok() ? CheckedAdd(total, *bytes) : std::nullopt;
  };
  if (p.reads_ab()) {
    add(StorageBytes(p.a, p.batch, p.type_a, "a"));
    add(StorageBytes(p.b, p.batch, p.type_b, "b"));
  }
  if (p.reads_c()) add(StorageBytes(p.c, p.batch, p.type_d, "c"));
  add(p.bias_length() * SizeOf(p.type_d));
  add(ResultBytes(p));
  return total;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(int lanes, int64_t memory_bytes) {
    traits_ = CpuTraits();
    traits_.name = std::string("cpu, OpenBLAS ") + BlasCoreName();
    traits_.memory_bytes = memory_bytes;
    for (int index = 0; index < lanes; ++index) lanes_.push_back(std::make_unique<CpuLane>(index));
    for (auto lane = lanes_.rbegin(); lane != lanes_.rend(); ++lane) free_.push_back(lane->get());
  }

  std::string_view name() const override { return "cpu"; }
  const DeviceTraits& traits() const override { return traits_; }

  Status CheckFits(const GemmProblem& problem) const override {
    const std::optional<int64_t> bytes = BytesOf(problem);
    if (bytes && *bytes <= traits_.memory_bytes) return OkStatus();
    return ResourceExhausted(ToString(problem) + " needs " +
                             (bytes ? std::to_string(*bytes) : "more than 2^63-1") +
                             " bytes, the host has " + std::to_string(traits_.memory_bytes));
  }

  Status CheckTimable(const GemmProblem& problem) const override {
    RETURN_IF_ERROR(CheckFits(problem));
    const int64_t half = traits_.memory_bytes / 2;
    const int64_t limit = std::min(kMostTimedBytes, half);
    const int64_t bytes = *BytesOf(problem);  // CheckFits
    if (bytes <= limit) return OkStatus();
    return ResourceExhausted(ToString(problem) + " has " + std::to_string(bytes) +
                             " bytes of operands and result; the limit of what is timed is " +
                             std::to_string(limit) + " bytes" +
                             (limit == half ? ", half of the host's memory" : ""));
  }

  std::optional<LaneLease> TryAcquireLane(const GemmProblem& /*problem*/) override {
    MutexLock lock(mu_);
    if (free_.empty()) return std::nullopt;
    Lane* const lane = free_.back();
    free_.pop_back();
    return LaneLease(lane, [this](Lane* released) { Release(released); });
  }

  StatusOr<std::unique_ptr<PlanTimer>> MakePlanTimer(const GemmProblem& problem) override {
    return MakeCpuPlanTimer(problem);
  }

  Status CheckCalibrates() const override {
    return Unimplemented(
               "calibrate: there is no model of a CPU to calibrate, which has one plan a product")
        .WithField("calibrate");
  }
  StatusOr<Calibration> Calibrate(std::stop_token) override { return CheckCalibrates(); }

  void SetReleaseListener(std::function<void()> listener) override {
    listener_ = std::move(listener);
  }

  bool healthy() const override { return true; }

  BackendUsage usage() const override {
    MutexLock lock(mu_);
    const int lanes = static_cast<int>(lanes_.size());
    return {.lanes = lanes, .lanes_in_use = lanes - static_cast<int>(free_.size())};
  }

 private:
  void Release(Lane* lane) {
    {
      MutexLock lock(mu_);
      free_.push_back(lane);
    }
    if (listener_) listener_();
  }

  DeviceTraits traits_;             // fixed once constructed
  std::function<void()> listener_;  // fixed before the first lease
  mutable Mutex mu_;
  std::vector<Lane*> free_ GUARDED_BY(mu_);
  std::vector<std::unique_ptr<CpuLane>> lanes_;  // fixed once constructed; last: its threads
                                                 // release leases until they are joined
};

Status CheckRange(const std::string& field, int value, int low, int high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(field, field + "=" + std::to_string(value) + " is outside " +
                                    std::to_string(low) + " .. " + std::to_string(high));
}

int64_t PhysicalMemoryBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options) {
  RETURN_IF_ERROR(CheckRange("lanes", options.lanes, 1, kMaxLanes));
  RETURN_IF_ERROR(CheckRange("cpu_threads", options.threads, 0, kMaxThreads));
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  SetBlasThreads(std::max(1, threads / options.lanes));
  const int64_t memory = options.memory_bytes > 0 ? options.memory_bytes : PhysicalMemoryBytes();
  try {
    return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(options.lanes, memory));
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start " + std::to_string(options.lanes) +
                             " lane threads: " + error.what());
  }
}

}  // namespace gemmd
