#include "server/tuning/tuner.h"

#include <atomic>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/problems.h"
#include "tests/unit/tuner_fixture.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kLongEnough{30};

TEST_F(TunerTest, TunedProblemsGetTheFastestMeasuredPlan) {
  backend_.SetPlanSeconds([](const Plan& plan) { return plan.stages == 3 ? 1e-6 : 1e-3; });
  const GemmProblem first = Problem(4096, 4096, 4096), second = Problem(512, 512, 512);
  ASSERT_TRUE(Tune({first, second}).get().ok());
  for (const GemmProblem& problem : {first, second}) {
    const StatusOr<Plan> plan = planner_.PlanFor(problem);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->source, PlanSource::kMeasured);
    EXPECT_EQ(plan->stages, 3);
    EXPECT_EQ(plan->measured_seconds, 1e-6);
    EXPECT_TRUE(tuner_->IsMeasured(problem));
  }
  EXPECT_FALSE(tuner_->IsMeasured(Problem(64, 64, 64)));
  ASSERT_EQ(steps_.size(), 3U);
  EXPECT_EQ(steps_[0].done, 0);
  EXPECT_FALSE(steps_[0].problem);
  EXPECT_EQ(steps_[1].done, 1);
  EXPECT_EQ(steps_[1].total, 2);
  EXPECT_GT(steps_[1].seconds_left, 0);
  EXPECT_EQ(steps_[1].best->stages, 3);
  EXPECT_EQ(steps_[2].problem->m, 512);
  EXPECT_EQ(steps_[2].seconds_left, 0);
  EXPECT_THAT(observer_.results(), ElementsAre(TuningResult::kOk));
  EXPECT_EQ(observer_.measured, 2);
  EXPECT_FALSE(observer_.measuring_now);
}

Calibration SlowerTma() {
  Calibration calibration = kH200Calibration;
  calibration.tma->flops_per_clock /= 10;
  return calibration;
}

TEST_F(TunerTest, CalibrationComesBeforeTheFirstProblemAndPlansAreByIt) {
  backend_.SetCalibration(SlowerTma());
  const GemmProblem problem = Problem(4096, 4096, 4096);
  const Plan before = *planner_.PlanFor(problem);
  ASSERT_TRUE(Tune({Problem(64, 64, 64)}, {}, {}, /*calibrate=*/true).get().ok());
  EXPECT_EQ(planner_.calibration(), SlowerTma());
  EXPECT_FALSE(SameLaunch(*planner_.PlanFor(problem), before));
  ASSERT_EQ(steps_.size(), 3U);
  EXPECT_TRUE(steps_[0].calibrations.empty());
  for (const size_t step : {1, 2}) {
    ASSERT_EQ(steps_[step].calibrations.size(), 1U);
    EXPECT_EQ(steps_[step].calibrations[0].device, "NVIDIA H200");
    EXPECT_EQ(steps_[step].calibrations[0].calibration, SlowerTma());
  }
  EXPECT_EQ(steps_[1].done, 0);
  EXPECT_FALSE(steps_[1].problem);
  EXPECT_EQ(steps_[2].done, 1);
  EXPECT_EQ(observer_.measured, 1) << "a calibration is no problem";
  EXPECT_FALSE(observer_.measuring_now);
}

TEST_F(TunerTest, CalibrationAloneNeedsNoProblemAndIsSaved) {
  int saves = 0;
  Make([&] {
    ++saves;
    return OkStatus();
  });
  ASSERT_TRUE(Tune({}, {}, {}, /*calibrate=*/true).get().ok());
  EXPECT_EQ(saves, 1);
  EXPECT_EQ(backend_.calibrations(), 1);
  ASSERT_EQ(steps_.size(), 2U);
  EXPECT_EQ(steps_[1].total, 0);
  EXPECT_THAT(observer_.results(), ElementsAre(TuningResult::kOk));
}

TEST_F(TunerTest, ACalibrationIsNotBegunUnlessAskedFor) {
  ASSERT_TRUE(Tune({Problem(64, 64, 64)}).get().ok());
  EXPECT_EQ(backend_.calibrations(), 0);
  EXPECT_FALSE(planner_.calibration());
}

TEST_F(TunerTest, CancelEndsACalibrationThatHoldsTheTunerMeanwhile) {
  backend_.HoldCalibrations();
  std::stop_source stop;
  std::future<Status> ended = Tune({}, stop, {}, /*calibrate=*/true);
  backend_.WaitForCalibrations(1);
  EXPECT_TRUE(observer_.measuring_now);
  const Status refused = Refused({Problem(64, 64, 64)});
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("a calibration is running"));
  stop.request_stop();
  EXPECT_EQ(ended.get().code(), StatusCode::kCancelled);
  EXPECT_FALSE(planner_.calibration());
  EXPECT_THAT(observer_.results(), ElementsAre(TuningResult::kCancelled));
}

TEST_F(TunerTest, DrainEndsACalibration) {
  backend_.HoldCalibrations();
  std::future<Status> ended = Tune({}, {}, {}, /*calibrate=*/true);
  backend_.WaitForCalibrations(1);
  tuner_->StartDrain();
  EXPECT_EQ(ended.get().code(), StatusCode::kUnavailable);
}

TEST_F(TunerTest, ACalibrationThatCannotBeEndsTheRunAndChangesNothing) {
  for (const bool measured : {false, true}) {
    Calibration nonsense = kH200Calibration;
    nonsense.cp_async.bytes_per_clock = 0;
    if (measured) {
      backend_.SetCalibration(nonsense);
    } else {
      backend_.SetCalibration(Internal("calibration: no figure"));
    }
    const Status status = Tune({Problem(64, 64, 64)}, {}, {}, /*calibrate=*/true).get();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("calibration: "));
    EXPECT_FALSE(planner_.calibration());
  }
  EXPECT_TRUE(backend_.timed().empty());
}

class UncalibratedTunerTest : public TunerTest {
 protected:
  UncalibratedTunerTest() : TunerTest({.traits = H200Traits(), .calibrates = false}) {}
};

TEST_F(UncalibratedTunerTest, ACalibrationOfNoModelIsRefusedAndNoRun) {
  EXPECT_EQ(Refused({}, /*calibrate=*/true).code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(observer_.results().empty());
}

TEST_F(TunerTest, ADeviceLostInACalibrationEndsTheRun) {
  backend_.SetCalibration(Internal("sticky"));
  backend_.HoldCalibrations();
  std::stop_source stop;
  std::future<Status> ended = Tune({}, stop, {}, /*calibrate=*/true);
  backend_.WaitForCalibrations(1);
  backend_.SetHealthy(false);
  stop.request_stop();
  EXPECT_EQ(ended.get().code(), StatusCode::kUnavailable);
}

TEST_F(TunerTest, CancelKeepsWhatWasMeasured) {
  const GemmProblem first = Problem(256, 256, 256), second = Problem(2048, 2048, 512);
  std::atomic<int> saves{0};
  Make([&saves] {
    ++saves;
    return OkStatus();
  });
  backend_.HoldTimers(1);
  std::stop_source stop;
  std::future<Status> ended = Tune({first, second}, stop);
  backend_.WaitForTimers(2);
  stop.request_stop();
  EXPECT_EQ(ended.get().code(), StatusCode::kCancelled);
  EXPECT_TRUE(tuner_->IsMeasured(first));
  EXPECT_FALSE(tuner_->IsMeasured(second));
  EXPECT_EQ(saves, 1);
  EXPECT_THAT(observer_.results(), ElementsAre(TuningResult::kCancelled));
  EXPECT_EQ(observer_.given_up, 1);
}

TEST_F(TunerTest, SpentBudgetEndsTheRunWell) {
  backend_.HoldTimers();
  EXPECT_TRUE(Tune({Problem(256, 256, 256)}, {}, std::chrono::milliseconds(1)).get().ok());
  EXPECT_THAT(observer_.results(), ElementsAre(TuningResult::kBudget));
  EXPECT_EQ(steps_.back().done, 0);
}

TEST_F(TunerTest, SecondRunIsRefusedAndNamesTheFirst) {
  backend_.HoldTimers();
  std::future<Status> first = Tune({Problem(256, 256, 256)});
  const Status second = Refused({Problem(64, 64, 64)});
  EXPECT_EQ(second.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(second.message(), HasSubstr("a tune of 1 problem is running"));
  EXPECT_TRUE(second.retry_after());
  backend_.ReleaseTimers();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(Tune({Problem(64, 64, 64)}).get().ok());  // at once: the end was told
}

TEST_F(TunerTest, DrainEndsTheRunAndRefusesTheNext) {
  backend_.HoldTimers();
  std::future<Status> ended = Tune({Problem(256, 256, 256)});
  EXPECT_FALSE(tuner_->WaitIdle(SteadyClock::now()));
  tuner_->StartDrain();
  EXPECT_TRUE(tuner_->WaitIdle(SteadyClock::now() + kLongEnough));
  EXPECT_EQ(ended.get().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Refused({Problem(64, 64, 64)}).code(), StatusCode::kUnavailable);
  EXPECT_THAT(observer_.results(), ElementsAre(TuningResult::kDrained));
}

TEST_F(TunerTest, DestructionEndsTheRun) {
  backend_.HoldTimers();
  std::future<Status> ended = Tune({Problem(256, 256, 256)});
  tuner_.reset();
  EXPECT_EQ(ended.get().code(), StatusCode::kUnavailable);
}

TEST_F(TunerTest, BadProblemsAreRefusedWithTheirPlaceInTheList) {
  const GemmProblem good = Problem(64, 64, 64);
  EXPECT_EQ(Refused({}).field(), "problems");

  const Status many = Refused(std::vector<GemmProblem>(kMaxTuningProblems + 1, good));
  EXPECT_EQ(many.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(many.message(), AllOf(HasSubstr("10001"), HasSubstr("10000")));

  const Status empty = Refused({good, Problem(0, 64, 64)});
  EXPECT_EQ(empty.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(empty.field(), "problems[1]");

  const Status types = Refused({good, good, Problem(64, 64, 64, DType::kF8E4M3)});
  EXPECT_EQ(types.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(types.field(), "problems[2].type_a");
  EXPECT_THAT(types.message(), HasSubstr("problems[2].type_a=e4m3"));
  EXPECT_TRUE(backend_.timed().empty());
  EXPECT_TRUE(observer_.results().empty());
}

class SmallTunerTest : public TunerTest {
 protected:
  SmallTunerTest() : TunerTest({.memory_bytes = 1 << 20, .traits = H200Traits()}) {}
};

TEST_F(SmallTunerTest, ProblemThatCannotFitIsRefusedUpFrontWithBytesAndLimit) {
  const Status status = Refused({Problem(64, 64, 64), Problem(4096, 4096, 64)});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.field(), "problems[1]");
  EXPECT_THAT(status.message(), AllOf(HasSubstr("33554432"), HasSubstr("1048576")));
  EXPECT_TRUE(backend_.timed().empty());
}

TEST_F(TunerTest, ProblemWithoutMemoryDoesNotCostTheOthers) {
  backend_.FailNextTimer(ResourceExhausted("no memory for 1234 bytes"));
  const GemmProblem first = Problem(256, 256, 256), second = Problem(64, 64, 64);
  const Status status = Tune({first, second}).get();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("1 of 2"), HasSubstr("1234 bytes")));
  EXPECT_FALSE(tuner_->IsMeasured(first));
  EXPECT_TRUE(tuner_->IsMeasured(second));
  ASSERT_EQ(steps_.size(), 3U);
  EXPECT_FALSE(steps_[1].best);
  EXPECT_TRUE(steps_[2].best);
}

TEST_F(TunerTest, LostDeviceEndsTheRun) {
  backend_.HoldTimers();
  std::stop_source stop;
  std::future<Status> ended = Tune({Problem(256, 256, 256), Problem(64, 64, 64)}, stop);
  backend_.WaitForTimers(1);
  backend_.SetHealthy(false);
  stop.request_stop();
  const Status status = ended.get();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("device lost"));
  EXPECT_EQ(Refused({Problem(64, 64, 64)}).code(), StatusCode::kUnavailable);
}

TEST_F(TunerTest, FailureToSaveIsToldAfterTheFirstProblem) {
  Make([] { return FailedPrecondition("/no/such/folder: ENOENT"); });
  const GemmProblem first = Problem(256, 256, 256), second = Problem(64, 64, 64);
  const Status status = Tune({first, second}).get();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("/no/such/folder"), HasSubstr("in use")));
  EXPECT_EQ(backend_.timed().size(), 1U);
  EXPECT_TRUE(tuner_->IsMeasured(first));
}

TEST_F(TunerTest, ADrainSaysWhatBecomesOfWhatWasMeasured) {
  const auto drained = [this](const auto& start) {
    backend_.HoldTimers();
    const int before = static_cast<int>(backend_.timed().size());
    std::future<Status> ended = start();
    backend_.WaitForTimers(before + 1);
    tuner_->StartDrain();
    backend_.ReleaseTimers();
    return ended.get();
  };
  const auto tune = [this] { return Tune({Problem(256, 256, 256)}); };
  EXPECT_EQ(
      drained(tune).message(),
      "the server is draining; what was measured is lost with the server, which has no tuning "
      "file");
  EXPECT_EQ(Refused({Problem(64, 64, 64)}).message(), "the server is draining");
  Make([] { return OkStatus(); }, "/x/tuning.json");
  EXPECT_EQ(drained(tune).message(),
            "the server is draining; what was measured is saved in /x/tuning.json");
  Make([] { return OkStatus(); }, "/x/tuning.json");
  const Status study = drained([this] {
    StudyRun run;
    run.problems = {Problem(256, 256, 256)};
    run.point = [](const StudyStep&) {};
    std::future<Status> ended = Ended(&run);
    EXPECT_TRUE(tuner_->Study(std::move(run)).ok());
    return ended;
  });
  EXPECT_EQ(study.message(), "the server is draining") << "a study learns nothing";
}

TEST_F(TunerTest, StepsSayWhatIsSaved) {
  ASSERT_TRUE(Tune({Problem(64, 64, 64)}).get().ok());
  EXPECT_FALSE(tuner_->saves());
  EXPECT_EQ(steps_.back().saved, 0);
  Make([] { return OkStatus(); });
  EXPECT_TRUE(tuner_->saves());
  ASSERT_TRUE(Tune({Problem(64, 64, 64)}).get().ok());
  EXPECT_EQ(steps_.back().saved, 1);
  Make([] { return FailedPrecondition("full"); });
  ASSERT_FALSE(Tune({Problem(64, 64, 64)}).get().ok());
  EXPECT_EQ(steps_.back().saved, 0);
}

TEST_F(TunerTest, SaysWhatRuns) {
  EXPECT_EQ(tuner_->running(), "");
  backend_.HoldTimers();
  std::future<Status> ended = Tune({Problem(64, 64, 64)});
  EXPECT_EQ(tuner_->running(), "a tune of 1 problem");
  backend_.ReleaseTimers();
  EXPECT_TRUE(ended.get().ok());
  EXPECT_TRUE(tuner_->WaitIdle(SteadyClock::now() + kLongEnough));
  EXPECT_EQ(tuner_->running(), "");
}

TEST_F(TunerTest, WhatWasLearntIsSavedAtTheEnd) {
  std::atomic<size_t> saved{0};
  Make([&] {
    saved = planner_.Learnt().size();
    return OkStatus();
  });
  ASSERT_TRUE(
      Tune({Problem(64, 64, 64), Problem(256, 256, 256), Problem(512, 512, 64)}).get().ok());
  EXPECT_EQ(saved, 3U);
}

TEST_F(TunerTest, RunInterruptsTheBackgroundAndIsInterruptedByNone) {
  backend_.HoldTimers();
  const GemmProblem background = Problem(256, 256, 256), asked = Problem(64, 64, 64);
  std::future<Status> gave_way = std::async(
      std::launch::async, [&] { return tuner_->TuneInBackground(background, std::stop_source()); });
  backend_.WaitForTimers(1);
  std::future<Status> ended = Tune({asked});
  EXPECT_EQ(gave_way.get().code(), StatusCode::kCancelled);
  EXPECT_EQ(tuner_->TuneInBackground(background, std::stop_source()).code(),
            StatusCode::kCancelled);
  backend_.ReleaseTimers();
  EXPECT_TRUE(ended.get().ok());
  EXPECT_TRUE(tuner_->WaitIdle(SteadyClock::now() + kLongEnough));
  EXPECT_TRUE(tuner_->TuneInBackground(background, std::stop_source()).ok());
  EXPECT_TRUE(tuner_->IsMeasured(background));
}

}  // namespace
}  // namespace gemmd
