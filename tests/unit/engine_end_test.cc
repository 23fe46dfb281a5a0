// How requests end before their product does: deadlines, cancellation, draining.
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/engine/engine.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/manual_backend.h"

namespace gemmd {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using testing::Call;
using testing::MakeRequest;
using testing::ManualBackend;

using EngineEndTest = testing::EngineFixture;

// How a lane ends what it was asked to stop.
LaneResult Stopped() {
  LaneResult result;
  result.status = Cancelled("stopped");
  return result;
}

// --- Deadlines and cancellation ---

TEST_F(EngineEndTest, AnswersAtTheDeadlineThoughAllLanesAreBusy) {
  ManualBackend& backend = AddBackend();
  Start();
  const auto running = Send();
  backend.WaitForStarted(1);
  const SteadyClock::time_point deadline = SteadyClock::now() + milliseconds(30);
  Send();  // without a deadline, ahead of it
  const auto expiring = Send({.deadline = deadline});
  const GemmResult result = expiring->Wait();
  EXPECT_GE(SteadyClock::now(), deadline);
  EXPECT_EQ(result.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(result.status.message(), HasSubstr("ms in the queue"));
  EXPECT_EQ(result.plan.row, -1);
  EXPECT_FALSE(running->ended());
  EXPECT_EQ(engine_->queued_requests(), 1);
  EXPECT_EQ(backend.started(), 1);
}

TEST_F(EngineEndTest, ALaterRequestWithAnEarlierDeadlineExpiresFirst) {
  ManualBackend& backend = AddBackend();
  Start();
  Send();
  backend.WaitForStarted(1);
  const auto late = Send({.deadline = SteadyClock::now() + std::chrono::hours(1)});
  const auto early = Send({.deadline = SteadyClock::now() + milliseconds(10)});
  EXPECT_EQ(early->Wait().status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(late->ended());
}

TEST_F(EngineEndTest, ARequestCancelledInTheQueueNeverReachesALane) {
  ManualBackend& backend = AddBackend();
  Start();
  Send();
  backend.WaitForStarted(1);
  RequestId id = 0;
  const auto cancelled = Send({.m = 77}, &id);
  Send({.m = 5});
  engine_->Cancel(id);
  EXPECT_EQ(cancelled->Wait().status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(cancelled->d.empty());
  backend.CompleteNext();
  backend.WaitForStarted(2);
  EXPECT_EQ(backend.problems()[1].m, 5);
}

TEST_F(EngineEndTest, CancelAsksTheLaneOfARunningRequestAndNoOtherToStop) {
  ManualBackend& backend = AddBackend({.lanes = 2});
  Start();
  RequestId id = 0;
  const auto cancelled = Send({}, &id);
  backend.WaitForStarted(1);
  const auto other = Send();
  backend.WaitForStarted(2);
  EXPECT_EQ(backend.stops_requested(), 0);
  engine_->Cancel(id);
  EXPECT_EQ(backend.stops_requested(), 1);
  EXPECT_EQ(engine_->running_requests(), 2);  // until the lane says that it has
  EXPECT_FALSE(cancelled->ended());
  backend.CompleteNext(Stopped());
  const Status status = cancelled->Wait().status;
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_THAT(status.message(), HasSubstr("while the product ran"));
  EXPECT_EQ(backend.stops_requested(), 0);
  backend.CompleteNext();
  EXPECT_TRUE(other->Wait().status.ok());
}

TEST_F(EngineEndTest, WhatIsStoppedPastItsDeadlineEndsWithDeadlineExceeded) {
  ManualBackend& backend = AddBackend();
  Start();
  RequestId id = 0;
  const auto deadline = SteadyClock::now() + milliseconds(500);
  const auto call = Send({.deadline = deadline}, &id);
  backend.WaitForStarted(1);
  EXPECT_EQ(Send({.deadline = deadline})->Wait().status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(backend.stops_requested(), 0);
  engine_->Cancel(id);
  backend.CompleteNext(Stopped());
  EXPECT_EQ(call->Wait().status.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(EngineEndTest, AProductThatEndsInSpiteOfACancelKeepsItsResult) {
  ManualBackend& backend = AddBackend();
  Start();
  RequestId id = 0;
  const auto call = Send({}, &id);
  backend.WaitForStarted(1);
  engine_->Cancel(id);
  backend.CompleteNext();
  EXPECT_TRUE(call->Wait().status.ok());
  engine_->Cancel(id);
  engine_->Cancel(id + 1000);
  EXPECT_EQ(call->done_runs, 1);
}

// --- Draining ---

TEST_F(EngineEndTest, DrainRefusesNewWorkAndFinishesTheRest) {
  ManualBackend& backend = AddBackend();
  Start();
  const auto running = Send();
  const auto waiting = Send();
  backend.WaitForStarted(1);
  engine_->StartDrain();
  EXPECT_TRUE(engine_->draining());
  const Status status = Refused();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(status.retry_after().has_value());
  EXPECT_EQ(Refused({.m = 0}).code(), StatusCode::kUnavailable);
  EXPECT_THAT(observer_.rejected(), ElementsAre(RejectReason::kDraining, RejectReason::kDraining));
  EXPECT_FALSE(engine_->WaitIdle(SteadyClock::now()));
  backend.CompleteNext();
  backend.WaitForStarted(2);
  backend.CompleteNext();
  EXPECT_TRUE(engine_->WaitIdle(SteadyClock::time_point::max()));
  EXPECT_TRUE(running->Wait().status.ok());
  EXPECT_TRUE(waiting->Wait().status.ok());
}

TEST_F(EngineEndTest, CutFailsWhatWaitsAndAsksWhatRunsToStop) {
  ManualBackend& backend = AddBackend();
  Start();
  const auto running = Send();
  backend.WaitForStarted(1);
  const auto waiting = Send();
  engine_->StartDrain();
  engine_->CutQueue();
  const Status status = waiting->Wait().status;
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(status.retry_after().has_value());
  EXPECT_FALSE(running->ended());
  EXPECT_EQ(backend.stops_requested(), 1);
  backend.CompleteNext(Stopped());
  const Status stopped = running->Wait().status;
  EXPECT_EQ(stopped.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(stopped.retry_after().has_value());
  EXPECT_EQ(backend.started(), 1);
}

TEST_F(EngineEndTest, DestructionCutsWhatWaitsAndAwaitsWhatRuns) {
  ManualBackend& backend = AddBackend();
  Start();
  const auto running = Send();
  backend.WaitForStarted(1);
  const auto waiting = Send();
  std::thread destroyer([this] { engine_.reset(); });
  EXPECT_EQ(waiting->Wait().status.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(running->ended());
  backend.CompleteNext();
  destroyer.join();
  EXPECT_TRUE(running->ended());
}

// Cuts the queue at the worst moment: between a request's admission and its place in the queue.
class CuttingObserver : public EngineObserver {
 public:
  void Admitted(const GemmRequest&) override {
    engine->StartDrain();
    engine->CutQueue();
  }
  void Rejected(RejectReason) override {}
  void Completed(const GemmRequest&, const GemmResult&) override {}
  Engine* engine = nullptr;
};

TEST(EngineDrainTest, NothingEntersAQueueThatWasCut) {
  ManualBackend backend;
  CuttingObserver observer;
  Engine engine({}, {&backend}, &observer);
  observer.engine = &engine;
  auto call = std::make_shared<Call>();
  ASSERT_TRUE(engine.Submit(MakeRequest(call, {})).ok());
  EXPECT_EQ(call->Wait().status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(backend.started(), 0);
  EXPECT_EQ(engine.queued_bytes(), 0);
}

}  // namespace
}  // namespace gemmd
