#include "server/tuning/background_tuner.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tuning/traffic.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/manual_backend.h"

namespace gemmd {
namespace {

using testing::Call;
using ::testing::ElementsAre;
using testing::MakeRequest;
using testing::ManualBackend;

using std::chrono::milliseconds;

// --- The record of what was served ---

std::unique_ptr<GemmRequest> Request(int64_t m, PlanConstraints constraints = {}) {
  return MakeRequest(std::make_shared<Call>(), {.m = m, .constraints = constraints});
}

void Serve(Traffic& traffic, int64_t m, int times = 1) {
  for (int i = 0; i < times; ++i) {
    const auto request = Request(m);
    traffic.Admitted(*request);
    traffic.Completed(*request, GemmResult{});
  }
}

std::vector<int64_t> ServedM(const Traffic& traffic) {
  std::vector<int64_t> ms;
  for (const GemmProblem& problem : traffic.MostServed()) ms.push_back(problem.m);
  return ms;
}

TEST(TrafficTest, MostServedComesFirst) {
  Traffic traffic;
  Serve(traffic, 3, 2);
  Serve(traffic, 5, 7);
  Serve(traffic, 4, 3);
  EXPECT_THAT(ServedM(traffic), ElementsAre(5, 4, 3));
}

TEST(TrafficTest, OnlyProductsThatEndedWellByThePlannersOwnChoiceAreRemembered) {
  Traffic traffic;
  GemmResult failed;
  failed.status = Cancelled("x");
  const auto cancelled = Request(3), forced = Request(4, {.row = 0, .stages = {}, .split_k = {}}),
             empty = Request(0);
  for (const auto* request : {&cancelled, &forced, &empty}) traffic.Admitted(**request);
  traffic.Completed(*cancelled, failed);
  traffic.Completed(*forced, GemmResult{});
  traffic.Completed(*empty, GemmResult{});
  EXPECT_TRUE(traffic.MostServed().empty());
  EXPECT_TRUE(traffic.idle());
}

TEST(TrafficTest, ScalarsThatPlansDoNotDependOnAreOneProblem) {
  Traffic traffic;
  for (const double alpha : {1.0, 2.0, 0.5}) {
    const auto request = Request(8);
    request->problem.alpha = alpha;
    traffic.Admitted(*request);
    traffic.Completed(*request, GemmResult{});
  }
  ASSERT_EQ(traffic.MostServed().size(), 1U);
  EXPECT_EQ(traffic.MostServed().front().alpha, 1);
}

TEST(TrafficTest, FloodOfRareProblemsIsBoundedAndKeepsTheCommonOnes) {
  Traffic traffic;
  Serve(traffic, 7, 3);
  for (int m = 100; m < 100 + 5 * Traffic::kMaxProblems; ++m) Serve(traffic, m);
  const std::vector<int64_t> served = ServedM(traffic);
  EXPECT_LE(served.size(), static_cast<size_t>(Traffic::kMaxProblems));
  EXPECT_GE(served.size(), static_cast<size_t>(Traffic::kMaxProblems / 2));
  EXPECT_EQ(served.front(), 7);
}

TEST(TrafficTest, ListenerHearsOfTheFirstAndOfTheLast) {
  Traffic traffic;
  int calls = 0;
  traffic.SetListener([&calls] { ++calls; });
  const auto first = Request(3), second = Request(4);
  traffic.Admitted(*first);
  EXPECT_FALSE(traffic.idle());
  traffic.Admitted(*second);
  traffic.Completed(*first, GemmResult{});
  EXPECT_EQ(calls, 1);
  traffic.Completed(*second, GemmResult{});
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(traffic.idle());
  traffic.SetListener(nullptr);
  Serve(traffic, 5);
  EXPECT_EQ(calls, 2);
}

// --- The cap ---

TEST(ShareCapTest, PausesAreAsLongAsTheShareDemands) {
  ShareCap cap(0.1);
  const SteadyClock::time_point start = SteadyClock::now();
  EXPECT_LE(cap.may_start(), start);
  cap.Spent(start, start + milliseconds(100));
  EXPECT_EQ(cap.may_start(), start + milliseconds(1000));

  ShareCap all(1.0);
  all.Spent(start, start + milliseconds(100));
  EXPECT_EQ(all.may_start(), start + milliseconds(100));
}

TEST(ShareCapTest, MeasuringAsSoonAsAllowedStaysAtTheShare) {
  ShareCap cap(0.25);
  const SteadyClock::time_point begin = SteadyClock::now();
  SteadyClock::time_point now = begin;
  SteadyClock::duration busy{0};
  for (int i = 1; i <= 20; ++i) {
    const auto took = milliseconds(7 * i);
    cap.Spent(now, now + took);
    busy += took;
    now = cap.may_start();
  }
  EXPECT_NEAR(std::chrono::duration<double>(busy) / (now - begin), 0.25, 1e-6);
}

// --- The thread ---

class BackgroundTunerTest : public ::testing::Test {
 protected:
  void Start(BackgroundOptions options = {.share = 1.0, .quiet = milliseconds(1)}) {
    background_ = std::make_unique<BackgroundTuner>(options, &tuner_, &traffic_);
  }
  static GemmProblem ProblemOf(int64_t m) { return Request(m)->problem; }
  template <typename Condition>
  static void Until(Condition condition) {
    const auto limit = SteadyClock::now() + std::chrono::seconds(30);
    while (!condition()) {
      ASSERT_LT(SteadyClock::now(), limit);
      std::this_thread::yield();
    }
  }
  std::vector<int64_t> TimedM() const {
    std::vector<int64_t> ms;
    for (const GemmProblem& problem : backend_.timed()) ms.push_back(problem.m);
    return ms;
  }

  ManualBackend backend_{{.traits = H200Traits()}};
  TunedPlanner planner_{H200Traits()};
  Traffic traffic_;
  Tuner tuner_{{{.backend = &backend_, .planner = &planner_}}, {}, nullptr};
  std::unique_ptr<BackgroundTuner> background_;
};

TEST_F(BackgroundTunerTest, IdleServerTunesWhatItServedMostFirstAndEachOnce) {
  Serve(traffic_, 64);
  Serve(traffic_, 128, 3);
  Serve(traffic_, 256, 2);
  Start();
  Until([this] { return tuner_.IsMeasured(ProblemOf(64)); });
  EXPECT_THAT(TimedM(), ElementsAre(128, 256, 64));
  Serve(traffic_, 128);
  Serve(traffic_, 512);
  Until([this] { return tuner_.IsMeasured(ProblemOf(512)); });
  EXPECT_THAT(TimedM(), ElementsAre(128, 256, 64, 512));
}

TEST_F(BackgroundTunerTest, ProductThatArrivesEndsTheMeasurementWhichIsBegunAnewLater) {
  backend_.HoldTimers();
  Serve(traffic_, 64);
  Start();
  backend_.WaitForTimers(1);
  const auto request = Request(32);
  traffic_.Admitted(*request);
  EXPECT_TRUE(tuner_.WaitIdle(SteadyClock::now() + std::chrono::seconds(30)));
  EXPECT_FALSE(tuner_.IsMeasured(ProblemOf(64)));
  backend_.ReleaseTimers();
  EXPECT_THAT(TimedM(), ElementsAre(64));  // nothing while a product is under way
  traffic_.Completed(*request, GemmResult{});
  Until([this] { return tuner_.IsMeasured(ProblemOf(64)) && tuner_.IsMeasured(ProblemOf(32)); });
}

TEST_F(BackgroundTunerTest, ProblemThatCannotBeMeasuredIsLeftAlone) {
  backend_.FailNextTimer(ResourceExhausted("no memory"));
  Serve(traffic_, 64, 2);
  Serve(traffic_, 32);
  Start();
  Until([this] { return tuner_.IsMeasured(ProblemOf(32)); });
  EXPECT_FALSE(tuner_.IsMeasured(ProblemOf(64)));
  EXPECT_THAT(TimedM(), ElementsAre(32));
}

TEST_F(BackgroundTunerTest, WhatIsMeasuredAlreadyIsNotMeasuredAgain) {
  Serve(traffic_, 64, 2);
  Serve(traffic_, 32);
  ASSERT_TRUE(tuner_.TuneInBackground(ProblemOf(64), std::stop_source()).ok());
  Start();
  Until([this] { return tuner_.IsMeasured(ProblemOf(32)); });
  EXPECT_THAT(TimedM(), ElementsAre(64, 32));
}

TEST_F(BackgroundTunerTest, EndsWhileItMeasuresAndWhileItPauses) {
  backend_.HoldTimers();
  Serve(traffic_, 64);
  Start();
  backend_.WaitForTimers(1);
  background_.reset();
  Start({.share = 0.1, .quiet = std::chrono::hours(1)});
  background_.reset();
}

}  // namespace
}  // namespace gemmd
