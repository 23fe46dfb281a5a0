// A tuner of a backend whose clock the test is.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/tuning/tuner.h"
#include "tests/support/manual_backend.h"

namespace gemmd {

using testing::ManualBackend;

class CountingObserver : public TuningObserver {
 public:
  void MeasuringChanged(bool measuring) override { measuring_now = measuring; }
  void Measured(bool ok, Nanoseconds) override { ++(ok ? measured : given_up); }
  void RunEnded(TuningResult result) override {
    MutexLock lock(mu_);
    results_.push_back(result);
  }
  std::vector<TuningResult> results() {
    MutexLock lock(mu_);
    return results_;
  }

  std::atomic<bool> measuring_now{false};
  std::atomic<int> measured{0}, given_up{0};

 private:
  Mutex mu_;
  std::vector<TuningResult> results_ GUARDED_BY(mu_);
};

// A tuner of an H200 whose clock the test is.
class TunerTest : public ::testing::Test {
 protected:
  TunerTest() : TunerTest(testing::ManualBackendOptions{.traits = H200Traits()}) {}
  explicit TunerTest(testing::ManualBackendOptions options)
      : backend_(std::move(options)), planner_(backend_.traits()) {
    Make({});
  }

  void Make(Tuner::Save save, std::string saved_in = {}) {
    tuner_ = std::make_unique<Tuner>(
        std::vector<TuningDevice>{{.backend = &backend_, .planner = &planner_}}, std::move(save),
        &observer_, std::move(saved_in), &stalls_);
  }

  std::future<Status> Ended(TuningRun* run) {
    const auto promise = std::make_shared<std::promise<Status>>();
    run->done = [promise](Status status) { promise->set_value(std::move(status)); };
    return promise->get_future();
  }
  // Must be started.
  std::future<Status> Tune(std::vector<GemmProblem> problems, std::stop_source stop = {},
                           std::optional<Nanoseconds> budget = {}, bool calibrate = false) {
    TuneRun run;
    run.calibrate = calibrate;
    run.problems = std::move(problems);
    run.stop = std::move(stop);
    run.budget = budget;
    run.progress = [this](const TuneStep& step) { steps_.push_back(step); };
    std::future<Status> ended = Ended(&run);
    const Status status = tuner_->Tune(std::move(run));
    EXPECT_TRUE(status.ok()) << status.ToString();
    return ended;
  }
  Status Refused(std::vector<GemmProblem> problems, bool calibrate = false) {
    TuneRun run;
    run.calibrate = calibrate;
    run.problems = std::move(problems);
    run.done = [](const Status&) { ADD_FAILURE() << "a refused run ended"; };
    return tuner_->Tune(std::move(run));
  }
  double MeasuredSeconds(const GemmProblem& problem) const {
    return planner_.PlanFor(problem)->measured_seconds;
  }

  ManualBackend backend_;
  TunedPlanner planner_;
  StallSampler stalls_{{&backend_}, {}, nullptr};
  CountingObserver observer_;
  std::vector<TuneStep> steps_;  // written by the tuner's thread before the run's end
  std::unique_ptr<Tuner> tuner_;
};

}  // namespace gemmd
