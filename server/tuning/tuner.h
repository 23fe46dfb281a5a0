// Runs tuning and studies: times plans on the devices that serve, one run at a time, beside the
// requests and never inside one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/mutex.h"
#include "kernels/plan/tuned_planner.h"
#include "server/engine/request.h"
#include "server/sampling/stall_sampler.h"
#include "server/tuning/tuning_observer.h"

namespace gemmd {

inline constexpr int kMaxTuningProblems = 10'000;  // of one run

// A planner and a device whose times it learns. Both outlive the tuner.
struct TuningDevice {
  Backend* backend = nullptr;
  TunedPlanner* planner = nullptr;
};

struct DeviceCalibration {
  int ordinal = 0;
  std::string device;  // its name
  Calibration calibration;
};

struct TuneStep {
  std::vector<DeviceCalibration> calibrations;  // so far
  int done = 0;                                 // problems, those included that failed
  int total = 0;
  std::optional<GemmProblem> problem;  // the last that was measured; none before the first
  std::optional<Plan> best;            // what it gets from now on; none where that failed
  double seconds_left = 0;             // estimate; 0 before the first
  int saved = 0;                       // of done, those whose times are written down
};

struct StudyStep {
  GemmProblem problem;
  Plan plan;
  PlanTiming timing;
};

struct Profile {
  Plan plan;
  double median_seconds = 0;         // of a launch, while it was sampled
  std::vector<std::string> reasons;  // of the counts
  PcSamples samples;
};

// What all runs have. The callbacks run on the tuner's thread.
struct TuningRun {
  std::vector<GemmProblem> problems;  // ValidateProblem() is OK for each
  std::stop_source stop;  // ends the run soon, from any thread; the tuner also requests it
  // Exactly once when the run was started, after every other callback. What a tune has measured is
  // in use whatever the status, and saved where the tuner saves and the status does not say
  // otherwise:
  //   CANCELLED           `stop` was requested by its owner
  //   UNAVAILABLE         the server drains, or the device is lost
  //   RESOURCE_EXHAUSTED  a problem found no memory; the others were measured
  //   FAILED_PRECONDITION what was learnt could not be saved
  //   UNIMPLEMENTED       a device has no model to calibrate (field calibrate)
  //   INTERNAL            calibration found what cannot be; or a bug
  std::function<void(Status)> done;
};

struct TuneRun : TuningRun {
  bool calibrate = false;             // the devices first; then there may be no problems
  std::optional<Nanoseconds> budget;  // the run ends with OK when it is spent
  std::function<void(const TuneStep&)> progress;  // must not block
};

struct StudyRun : TuningRun {
  std::optional<int> row;  // a valid index into kKernelTable; absent: the planner's choice
  int max_stages = 0;      // 0: what fits
  std::function<void(const StudyStep&)> point;  // may block, but not once `stop` is requested
};

// Of one problem.
struct ProfileRun : TuningRun {
  PlanConstraints constraints;
  Nanoseconds duration{0};                     // above 0; of launches in a row
  std::function<void(const Profile&)> result;  // once, where the run ends with OK
};

class Tuner {  // Thread-safe.
 public:
  // Writes down what the planners have learnt; a failure names the path.
  using Save = std::function<Status()>;

  // At least one device. `save` may be empty; `saved_in` is what it writes. `observer` and
  // `sampler` outlive the tuner; `observer` may be null, and `sampler` where nothing is profiled.
  Tuner(std::vector<TuningDevice> devices, Save save, TuningObserver* observer,
        std::string saved_in = {}, StallSampler* sampler = nullptr);
  // As StartDrain(), and waits for the end of what runs.
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  // On OK `run.done` runs once. On error nothing was started, and no callback runs:
  //   RESOURCE_EXHAUSTED  another run is not over yet (retry_after set), or a problem can never fit
  //   INVALID_ARGUMENT    nothing to do, too many problems, an empty product, a kernel that is not
  //                       for it
  //   UNIMPLEMENTED       types or mode that no kernel of the device takes
  //   UNAVAILABLE         draining, or the device is lost
  // The field of what is wrong with a problem starts with "problems[i]".
  Status Tune(TuneRun run) EXCLUDES(mu_);
  // Times the row's plans of one part and without pairs, at every stage count from 1 to what fits
  // and has K steps, in turns. A kernel without a ring has one point.
  Status Study(StudyRun run) EXCLUDES(mu_);
  // Launches the problem's plan for a while on the first device that runs it, and samples that
  // device. The field of what is wrong with the problem starts with "problem", not with its index.
  // Also sampling_status() of a device that cannot be sampled.
  Status Profile(ProfileRun run) EXCLUDES(mu_);

  // Measures one problem on the calling thread, unless something runs; a run that is started
  // meanwhile requests `stop`. CANCELLED when it gave way.
  Status TuneInBackground(const GemmProblem& problem, const std::stop_source& stop) EXCLUDES(mu_);

  // Whether the time of this very problem is known, on all devices that run it.
  bool IsMeasured(const GemmProblem& problem) const;

  bool saves() const { return save_ != nullptr; }
  // "a tune of 12 problems"; empty: none waits or runs.
  std::string running() const EXCLUDES(mu_);

  // Refuses new runs from now on, and ends what runs soon.
  void StartDrain() EXCLUDES(mu_);
  // Waits until nothing runs; false when `deadline` passed first.
  bool WaitIdle(SteadyClock::time_point deadline) EXCLUDES(mu_);

 private:
  struct Job;
  class Saver;

  static Status DeviceLost();
  static Status CheckRunnable(const TuningDevice& device, const GemmProblem& problem,
                              const PlanConstraints& constraints);
  Status CheckProblem(const GemmProblem& problem, const PlanConstraints& constraints) const;
  Status CheckProblems(const TuningRun& run, const PlanConstraints& constraints) const;
  // The first device that runs the problem; INTERNAL where none does.
  StatusOr<const TuningDevice*> DeviceFor(const GemmProblem& problem,
                                          const PlanConstraints& constraints) const;
  Status Start(std::unique_ptr<Job> job) EXCLUDES(mu_);
  void Loop() EXCLUDES(mu_);
  std::string WhereLearntIs() const;

  Status RunTune(const TuneRun& run, const std::stop_token& stop);
  Status RunStudy(const StudyRun& run, const std::stop_token& stop);
  Status RunProfile(const ProfileRun& run, const std::stop_token& stop);
  Status StudyOne(const StudyRun& run, const GemmProblem& problem, const std::stop_token& stop);

  // Tells the observer that the device is in use meanwhile. UNAVAILABLE when `work` loses it.
  Status Use(const TuningDevice& device, const std::stop_token& stop,
             const std::function<Status()>& work);
  // Makes a timer, and tells the observer how long it took.
  Status Measure(const TuningDevice& device, const GemmProblem& problem,
                 const std::stop_token& stop, const std::function<Status(PlanTimer&)>& with);
  Status TuneOn(const TuningDevice& device, const GemmProblem& problem,
                const std::stop_token& stop);
  // The device's planner has what was measured from then on.
  StatusOr<DeviceCalibration> Calibrate(const TuningDevice& device, const std::stop_token& stop);
  StatusOr<Plan> TuneEverywhere(const GemmProblem& problem, const std::stop_token& stop);

  const std::vector<TuningDevice> devices_;
  const Save save_;
  const std::string saved_in_;
  TuningObserver* const observer_;  // may be null
  StallSampler* const sampler_;     // may be null

  mutable Mutex mu_;
  CondVar changed_;
  std::unique_ptr<Job> job_ GUARDED_BY(mu_);                    // waits or runs; null: none
  std::optional<std::stop_source> background_ GUARDED_BY(mu_);  // of what TuneInBackground runs
  bool ending_ GUARDED_BY(mu_) = false;                         // a `done` is running
  bool draining_ GUARDED_BY(mu_) = false;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// What is said of a problem ("problem.m"), said of an entry of a list of them ("problems[3].m").
Status AboutProblem(int index, const Status& status);

}  // namespace gemmd
