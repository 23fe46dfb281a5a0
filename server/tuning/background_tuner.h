// Tunes what the server has served while it has nothing else to do.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>

#include "kernels/core/mutex.h"
#include "server/tuning/traffic.h"
#include "server/tuning/tuner.h"

namespace gemmd {

// Keeps (time measuring) / (wall time) at or below a share: after a measurement nothing may start
// until the pause that its time costs has passed. Not thread-safe.
class ShareCap {
 public:
  // 0 < share <= 1.
  explicit ShareCap(double share) : share_(share) {}

  SteadyClock::time_point may_start() const { return may_start_; }
  void Spent(SteadyClock::time_point start, SteadyClock::time_point end);

 private:
  const double share_;
  SteadyClock::time_point may_start_ = SteadyClock::time_point::min();
};

struct BackgroundOptions {
  double share = 0.1;  // of wall time that devices may be measured in, 0 < share <= 1
  // How long no product may have been under way before a measurement starts.
  std::chrono::milliseconds quiet{1000};
};

// A thread that measures, one after the other, the most served problems whose time is not known,
// while the engine is idle. A product that arrives ends a measurement, which is then begun anew
// later.
class BackgroundTuner {  // Thread-safe.
 public:
  // Both outlive this, which is the only listener of `traffic`.
  BackgroundTuner(const BackgroundOptions& options, Tuner* tuner, Traffic* traffic);
  // Ends what is being measured.
  ~BackgroundTuner();
  BackgroundTuner(const BackgroundTuner&) = delete;
  BackgroundTuner& operator=(const BackgroundTuner&) = delete;

 private:
  void TrafficChanged() EXCLUDES(mu_);
  bool WaitForQuiet() EXCLUDES(mu_);
  std::optional<GemmProblem> NextProblem();
  void Loop() EXCLUDES(mu_);

  const BackgroundOptions options_;
  Tuner* const tuner_;
  Traffic* const traffic_;

  // Used by the thread alone.
  ShareCap cap_;
  std::set<GemmProblem, ProblemLess> settled_;  // measured, or not measurable

  Mutex mu_;
  CondVar changed_;
  SteadyClock::time_point quiet_since_ GUARDED_BY(mu_) = SteadyClock::now();
  bool news_ GUARDED_BY(mu_) = true;  // there may be a problem that was not looked at
  std::optional<std::stop_source> running_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace gemmd
