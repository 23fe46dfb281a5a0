// The tuner's profiles.
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/manual_sampler.h"
#include "tests/support/problems.h"
#include "tests/unit/tuner_fixture.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ManualSampler;
using testing::SamplesOf;

constexpr std::chrono::milliseconds kShort{1};
constexpr std::chrono::hours kForever{1};

class ProfileTest : public TunerTest {
 protected:
  ProfileTest() : ProfileTest(std::make_shared<ManualSampler>()) {}

  ProfileRun RunOf(const GemmProblem& problem) {
    ProfileRun run;
    run.problems = {problem};
    run.duration = kShort;
    run.result = [this](const Profile& profile) { profiles_.push_back(profile); };
    return run;
  }
  // Must be started.
  std::future<Status> Profiled(ProfileRun run) {
    std::future<Status> ended = Ended(&run);
    const Status status = tuner_->Profile(std::move(run));
    EXPECT_TRUE(status.ok()) << status.ToString();
    return ended;
  }
  Status RefusedProfile(ProfileRun run) {
    run.done = [](const Status&) { ADD_FAILURE() << "a refused run ended"; };
    return tuner_->Profile(std::move(run));
  }

  const std::shared_ptr<ManualSampler> sampler_;
  const GemmProblem problem_ = Problem(4096, 4096, 4096);
  std::vector<Profile> profiles_;  // written by the tuner's thread before the run's end

 private:
  explicit ProfileTest(const std::shared_ptr<ManualSampler>& sampler)
      : TunerTest({.traits = H200Traits(), .sampler = sampler}), sampler_(sampler) {}
};

TEST_F(ProfileTest, HasThePlanItsMedianAndWhatWasSampledMeanwhile) {
  backend_.SetPlanSeconds([](const Plan&) { return 2e-3; });
  sampler_->SetSamples(SamplesOf(4, {3, 5}));
  const SteadyClock::time_point start = SteadyClock::now();
  ASSERT_TRUE(Profiled(RunOf(problem_)).get().ok());
  EXPECT_GE(SteadyClock::now() - start, kShort);
  ASSERT_EQ(profiles_.size(), 1U);
  const Profile& profile = profiles_[0];
  EXPECT_TRUE(SameLaunch(profile.plan, *planner_.PlanFor(problem_)));
  EXPECT_EQ(profile.median_seconds, 2e-3);
  EXPECT_EQ(profile.reasons, sampler_->reasons());
  ASSERT_EQ(profile.samples.functions.size(), 1U);
  EXPECT_EQ(profile.samples.functions[0].kernel, 4);
  EXPECT_EQ(sampler_->reads(), 2) << "before and after";
  EXPECT_EQ(backend_.timed().size(), 1U) << "one timer";
  EXPECT_THAT(observer_.results(), ElementsAre(TuningResult::kOk));
  EXPECT_FALSE(observer_.measuring_now);
  EXPECT_EQ(stalls_.totals().samples.size(), 2U);
  EXPECT_FALSE(tuner_->IsMeasured(problem_)) << "a profile teaches the planner nothing";
}

TEST_F(ProfileTest, ThePlanIsAsAskedFor) {
  ProfileRun run = RunOf(problem_);
  run.constraints = {.row = RowByName("tma_wgmma_128x256x64"), .stages = 2, .split_k = {}};
  ASSERT_TRUE(Profiled(std::move(run)).get().ok());
  ASSERT_EQ(profiles_.size(), 1U);
  EXPECT_EQ(profiles_[0].plan.row, RowByName("tma_wgmma_128x256x64"));
  EXPECT_EQ(profiles_[0].plan.stages, 2);
}

TEST_F(ProfileTest, RefusalsSayWhichFieldAndStartNothing) {
  const auto field = [this](ProfileRun run, StatusCode code) {
    const Status status = RefusedProfile(std::move(run));
    EXPECT_EQ(status.code(), code) << status.ToString();
    return status.field();
  };
  EXPECT_EQ(field(RunOf(Problem(0, 8, 8)), StatusCode::kInvalidArgument), "problem");
  EXPECT_EQ(field(RunOf(Problem(8, 8, 8, DType::kF8E4M3)), StatusCode::kUnimplemented),
            "problem.type_a");
  ProfileRun run = RunOf(Problem(64, 64, 64, DType::kF32));
  run.constraints.row = RowByName("tma_wgmma_128x256x64");
  EXPECT_EQ(field(std::move(run), StatusCode::kInvalidArgument), "plan.kernel");
  run = RunOf(problem_);
  run.problems.push_back(problem_);
  EXPECT_EQ(field(std::move(run), StatusCode::kInvalidArgument), "problem");
  EXPECT_EQ(sampler_->reads(), 0);
  EXPECT_THAT(backend_.timed(), IsEmpty());
}

TEST_F(ProfileTest, OtherRunsWaitTheirTurn) {
  backend_.HoldTimers();
  std::future<Status> ended = Profiled(RunOf(problem_));
  backend_.WaitForTimers(1);
  EXPECT_EQ(tuner_->running(), "a profile");
  EXPECT_TRUE(observer_.measuring_now);
  for (const Status& status : {Refused({problem_}), RefusedProfile(RunOf(problem_))}) {
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("a profile is running"));
    EXPECT_TRUE(status.retry_after());
  }
  EXPECT_EQ(tuner_->TuneInBackground(problem_, {}).code(), StatusCode::kCancelled);
  backend_.ReleaseTimers();
  EXPECT_TRUE(ended.get().ok());
}

TEST_F(ProfileTest, CancelEndsItSoonAndReadsWhatWasSampled) {
  backend_.HoldTimers();
  ProfileRun run = RunOf(problem_);
  run.duration = kForever;
  std::stop_source stop = run.stop;
  std::future<Status> ended = Profiled(std::move(run));
  backend_.WaitForTimers(1);
  EXPECT_EQ(sampler_->reads(), 1);
  stop.request_stop();
  EXPECT_EQ(ended.get().code(), StatusCode::kCancelled);
  EXPECT_EQ(sampler_->reads(), 2);
  EXPECT_THAT(profiles_, IsEmpty());
  EXPECT_THAT(observer_.results(), ElementsAre(TuningResult::kCancelled));
  backend_.ReleaseTimers();
  EXPECT_TRUE(Profiled(RunOf(problem_)).get().ok());
}

TEST_F(ProfileTest, CancelEndsItBetweenTwoLaunchesToo) {
  ProfileRun run = RunOf(problem_);
  run.duration = kForever;  // its timer answers at once
  std::stop_source stop = run.stop;
  std::future<Status> ended = Profiled(std::move(run));
  backend_.WaitForTimers(1);
  stop.request_stop();
  EXPECT_EQ(ended.get().code(), StatusCode::kCancelled);
}

TEST_F(ProfileTest, DrainEndsItAndRefusesTheNext) {
  backend_.HoldTimers();
  ProfileRun run = RunOf(problem_);
  run.duration = kForever;
  std::future<Status> ended = Profiled(std::move(run));
  backend_.WaitForTimers(1);
  tuner_->StartDrain();
  const Status status = ended.get();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "the server is draining") << "it has learnt nothing to save";
  EXPECT_EQ(sampler_->reads(), 2);
  EXPECT_THAT(observer_.results(), ElementsAre(TuningResult::kDrained));
  EXPECT_EQ(RefusedProfile(RunOf(problem_)).code(), StatusCode::kUnavailable);
}

TEST_F(ProfileTest, ALostDeviceIsSaidWhateverItsSamplerSays) {
  backend_.HoldTimers();
  std::future<Status> ended = Profiled(RunOf(problem_));
  backend_.WaitForTimers(1);
  backend_.SetHealthy(false);
  sampler_->SetSamples(Internal("no device"));
  backend_.ReleaseTimers();
  const Status status = ended.get();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("device lost"));
  EXPECT_THAT(profiles_, IsEmpty());
  EXPECT_EQ(RefusedProfile(RunOf(problem_)).code(), StatusCode::kUnavailable);
}

TEST_F(ProfileTest, ADeviceThatCannotBeReadBeforeOrAfterIsTheRunsError) {
  sampler_->AnswerNext(Unavailable("another profiler"));
  EXPECT_EQ(Profiled(RunOf(problem_)).get().message(), "another profiler");
  sampler_->AnswerNext(PcSamples{});
  sampler_->AnswerNext(ResourceExhausted("too many samples"));
  const Status status = Profiled(RunOf(problem_)).get();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "too many samples");
  EXPECT_THAT(profiles_, IsEmpty());
  EXPECT_THAT(observer_.results(), ElementsAre(TuningResult::kFailed, TuningResult::kFailed));
}

TEST_F(ProfileTest, NothingIsReadWhereThereIsNoTimer) {
  backend_.FailNextTimer(ResourceExhausted("no memory now"));
  EXPECT_EQ(Profiled(RunOf(problem_)).get().message(), "no memory now");
  EXPECT_EQ(sampler_->reads(), 0);
}

TEST_F(ProfileTest, AServerThatAlwaysSamplesProfilesAllTheSame) {
  tuner_.reset();
  StallSampler always({&backend_}, {.on = true, .period = kShort}, nullptr);
  tuner_ = std::make_unique<Tuner>(
      std::vector<TuningDevice>{{.backend = &backend_, .planner = &planner_}}, nullptr, nullptr, "",
      &always);
  sampler_->WaitForReads(1);
  EXPECT_TRUE(Profiled(RunOf(problem_)).get().ok());
  tuner_.reset();
}

TEST_F(ProfileTest, ATunerWithoutASamplerSaysSo) {
  tuner_ = std::make_unique<Tuner>(
      std::vector<TuningDevice>{{.backend = &backend_, .planner = &planner_}}, nullptr, nullptr);
  EXPECT_EQ(RefusedProfile(RunOf(problem_)).code(), StatusCode::kFailedPrecondition);
}

class UnsampledTest : public TunerTest {
 protected:
  UnsampledTest()
      : TunerTest(
            {.traits = H200Traits(), .sampling_status = FailedPrecondition("not asked for")}) {}
};

TEST_F(UnsampledTest, AProfileIsRefusedWithWhatIsInTheWay) {
  ProfileRun run;
  run.problems = {Problem(64, 64, 64)};
  run.duration = kShort;
  const Status status = tuner_->Profile(std::move(run));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "not asked for");
}

}  // namespace
}  // namespace gemmd
