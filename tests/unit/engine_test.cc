#include "server/engine/engine.h"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_fixture.h"
#include "tests/support/fault_injection_backend.h"
#include "tests/support/manual_backend.h"

namespace gemmd {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using testing::Call;
using testing::FaultInjectionBackend;
using testing::MakeRequest;
using testing::ManualBackend;

using EngineTest = testing::EngineFixture;

// --- Admission ---

TEST_F(EngineTest, RefusesBeyondTheCountOfTheQueueAndAsksForARetry) {
  ManualBackend& backend = AddBackend();
  Start({.max_queued_requests = 2});
  Send();
  backend.WaitForStarted(1);
  Send();
  Send();
  const Status status = Refused();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("2 requests wait, the limit is 2"));
  EXPECT_TRUE(status.retry_after().has_value());
  EXPECT_THAT(observer_.rejected(), ElementsAre(RejectReason::kQueueFull));
  EXPECT_EQ(engine_->queued_requests(), 2);
}

TEST_F(EngineTest, RefusesBeyondTheBytesOfTheQueueAndAsksForARetry) {
  ManualBackend& backend = AddBackend();
  Start({.max_queued_bytes = 1000});
  Send({.bytes = 1000});
  backend.WaitForStarted(1);
  Send({.bytes = 600});
  const Status status = Refused({.bytes = 401});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("bytes=401 and 600 that wait"));
  EXPECT_TRUE(status.retry_after().has_value());
  EXPECT_EQ(engine_->queued_bytes(), 600);
  Send({.bytes = 400});
  EXPECT_THAT(observer_.rejected(), ElementsAre(RejectReason::kQueueBytes));
}

TEST_F(EngineTest, RefusesWhatTheQueueNeverHoldsWithoutARetry) {
  AddBackend();
  Start({.max_queued_bytes = 1000});
  const Status status = Refused({.bytes = 1001});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(status.retry_after().has_value());
  EXPECT_THAT(observer_.rejected(), ElementsAre(RejectReason::kQueueBytes));
}

TEST_F(EngineTest, RefusesWhatTheDeviceNeverHoldsWithoutARetry) {
  AddBackend({.memory_bytes = 8 * 8 * 4 - 1});
  Start();
  const Status status = Refused();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("needs 256 bytes, there are 255"));
  EXPECT_FALSE(status.retry_after().has_value());
  EXPECT_THAT(observer_.rejected(), ElementsAre(RejectReason::kMemory));
}

TEST_F(EngineTest, RefusesTypesThatNoKernelTakes) {
  AddBackend();
  Start();
  EXPECT_EQ(Refused({.type = DType::kF8E4M3}).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(observer_.rejected(), ElementsAre(RejectReason::kUnsupported));
}

TEST_F(EngineTest, RefusesPlanConstraintsThatCannotBeMet) {
  AddBackend();
  Start();
  const Status status = Refused({.constraints = {.row = {}, .stages = 3, .split_k = {}}});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(status.field().empty());
  EXPECT_THAT(observer_.rejected(), ElementsAre(RejectReason::kUnsupported));
}

TEST_F(EngineTest, RefusesADeadlineAlreadyPast) {
  AddBackend();
  Start();
  const Status status = Refused({.deadline = SteadyClock::now() - milliseconds(1)});
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(observer_.rejected(), ElementsAre(RejectReason::kDeadline));
  const Status first = Refused({.deadline = SteadyClock::time_point::min()});
  EXPECT_EQ(first.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(first.message(), HasSubstr("deadline passed long before"));
}

TEST_F(EngineTest, AnswersAnEmptyProductWithoutALane) {
  ManualBackend& backend = AddBackend();
  Start({.max_queued_requests = 0});
  const GemmResult result = Send({.m = 0})->Wait();
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.plan.row, -1);
  EXPECT_EQ(result.lane, -1);
  EXPECT_TRUE(Send({.n = 0})->Wait().status.ok());
  EXPECT_EQ(backend.started(), 0);
}

TEST_F(EngineTest, RunsAProductThatReadsNothingOfAAndB) {
  ManualBackend& backend = AddBackend();
  Start();
  const auto call = Send({.k = 0});
  backend.WaitForStarted(1);
  backend.CompleteNext();
  EXPECT_GE(call->Wait().plan.row, 0);
}

// --- Order ---

TEST_F(EngineTest, StartsInOrderOfArrival) {
  ManualBackend& backend = AddBackend();
  Start();
  for (int64_t m = 1; m <= 20; ++m) Send({.m = m});
  for (int started = 1; started <= 20; ++started) {
    backend.WaitForStarted(started);
    EXPECT_EQ(engine_->running_requests(), 1);
    backend.CompleteNext();
  }
  const std::vector<GemmProblem> problems = backend.problems();
  for (int64_t m = 1; m <= 20; ++m) EXPECT_EQ(problems[static_cast<size_t>(m - 1)].m, m);
}

TEST_F(EngineTest, NothingOvertakesAHeadThatWaitsForMemory) {
  ManualBackend& backend = AddBackend({.lanes = 4, .memory_bytes = 1000});
  Start();
  Send({.m = 10, .n = 20});  // 800 bytes
  backend.WaitForStarted(1);
  Send({.m = 10, .n = 25});  // 1000 bytes: all of it
  backend.WaitForRefused(1);
  Send({.m = 1, .n = 1});  // would fit at once
  backend.CompleteNext();
  backend.WaitForStarted(2);
  EXPECT_EQ(backend.problems()[1].n, 25);
  backend.CompleteNext();
  backend.WaitForStarted(3);
}

TEST_F(EngineTest, WhatFollowsABlockedHeadStartsWhenTheHeadLeaves) {
  ManualBackend& backend = AddBackend({.lanes = 4, .memory_bytes = 1000});
  Start();
  Send({.m = 10, .n = 20});
  backend.WaitForStarted(1);
  RequestId big = 0;
  const auto cancelled = Send({.m = 10, .n = 25}, &big);
  backend.WaitForRefused(1);
  Send({.m = 1, .n = 1});
  engine_->Cancel(big);
  backend.WaitForStarted(2);  // though nothing has been released
  EXPECT_EQ(backend.problems()[1].m, 1);
  EXPECT_EQ(cancelled->Wait().status.code(), StatusCode::kCancelled);

  const auto expired = Send({.m = 10, .n = 25, .deadline = SteadyClock::now() + milliseconds(20)});
  Send({.m = 2, .n = 1});
  backend.WaitForStarted(3);
  EXPECT_EQ(backend.problems()[2].m, 2);
  EXPECT_EQ(expired->Wait().status.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(EngineTest, TakesTheBackendWithTheMostFreeLanes) {
  ManualBackend& small = AddBackend({.lanes = 1});
  ManualBackend& large = AddBackend({.lanes = 3});
  Start();
  for (int i = 1; i <= 2; ++i) {
    Send();
    large.WaitForStarted(i);
  }
  EXPECT_EQ(small.started(), 0);
  Send();
  Send();
  small.WaitForStarted(1);
  large.WaitForStarted(3);
}

TEST_F(EngineTest, UsesOnlyBackendsThatHaveTheMemory) {
  ManualBackend& small = AddBackend({.lanes = 8, .memory_bytes = 255});
  ManualBackend& large = AddBackend({.lanes = 1});
  Start();
  Send();
  large.WaitForStarted(1);
  EXPECT_EQ(small.started(), 0);
}

// --- Failures ---

TEST_F(EngineTest, AMissingResultBufferNamesItsBytes) {
  ManualBackend& backend = AddBackend();
  Start();
  auto call = std::make_shared<Call>();
  call->no_memory = true;
  ASSERT_TRUE(engine_->Submit(MakeRequest(call, {})).ok());
  const GemmResult result = call->Wait();
  EXPECT_EQ(result.status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(result.status.message(), HasSubstr("256 bytes"));
  EXPECT_EQ(result.plan.row, -1);
  EXPECT_EQ(backend.started(), 0);
}

TEST_F(EngineTest, DeviceMemoryRunningOutFailsThatRequestAlone) {
  ManualBackend& inner = AddBackend();
  inner.CompleteAll();
  FaultInjectionBackend faulty(&inner);
  faulty.OutOfMemoryAt(1);
  StartOn({&faulty});
  const GemmResult result = Send()->Wait();
  EXPECT_EQ(result.status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(result.plan.row, -1);
  EXPECT_TRUE(Send()->Wait().status.ok());
  EXPECT_TRUE(engine_->healthy());
  TearDown();
}

TEST_F(EngineTest, ADeviceErrorFailsThatRequestAlone) {
  ManualBackend& inner = AddBackend();
  inner.CompleteAll();
  FaultInjectionBackend faulty(&inner);
  faulty.DeviceErrorAt(1);
  StartOn({&faulty});
  const GemmResult result = Send()->Wait();
  EXPECT_EQ(result.status.code(), StatusCode::kInternal);
  EXPECT_GE(result.plan.row, 0);
  EXPECT_TRUE(Send()->Wait().status.ok());
  TearDown();
}

TEST_F(EngineTest, AStickyErrorFailsAllThatRunsOrWaitsAndRefusesTheRest) {
  ManualBackend& inner = AddBackend({.lanes = 2});
  FaultInjectionBackend faulty(&inner);
  faulty.StickyErrorAt(1);
  StartOn({&faulty});
  Send();
  inner.WaitForStarted(1);
  for (int i = 0; i < 3; ++i) Send();
  inner.WaitForStarted(2);
  inner.CompleteNext();
  inner.CompleteNext();
  for (const auto& call : calls_) {
    const Status status = call->Wait().status;
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_TRUE(status.retry_after().has_value());
  }
  EXPECT_EQ(inner.started(), 2);
  EXPECT_FALSE(engine_->healthy());
  EXPECT_EQ(Refused().code(), StatusCode::kUnavailable);
  EXPECT_THAT(observer_.rejected(), ElementsAre(RejectReason::kDeviceLost));
  TearDown();
}

TEST_F(EngineTest, AResultFinishedOnALostDeviceIsStillAResult) {
  ManualBackend& backend = AddBackend();
  Start();
  const auto call = Send();
  backend.WaitForStarted(1);
  backend.SetHealthy(false);
  backend.CompleteNext();
  EXPECT_TRUE(call->Wait().status.ok());
}

// --- What a result says ---

TEST_F(EngineTest, AResultSaysWhereItRanAndWhereItsTimeWent) {
  DeviceTraits traits = CpuTraits();
  traits.ordinal = 3;
  ManualBackend& backend = AddBackend({.traits = traits});
  Start();
  const auto call = Send();
  backend.WaitForStarted(1);
  LaneResult lane_result;
  lane_result.times.kernel = milliseconds(5);
  lane_result.stalls.wait_full = 11;
  backend.CompleteNext(lane_result);
  const GemmResult result = call->Wait();
  EXPECT_EQ(result.backend, "manual");
  EXPECT_EQ(result.device, 3);
  EXPECT_EQ(result.lane, 0);
  EXPECT_EQ(result.plan.kernel(), "openblas");
  EXPECT_EQ(result.times.kernel, milliseconds(5));
  EXPECT_EQ(result.times.decode, std::chrono::microseconds(7));
  EXPECT_GT(result.times.queue.count(), 0);
  EXPECT_GE(result.times.total, result.times.queue + result.times.plan);
  EXPECT_EQ(result.stalls.wait_full, 11u);
}

TEST_F(EngineTest, ACallbackMayCallTheEngine) {
  ManualBackend& backend = AddBackend();
  Start();
  RequestId waiting_id = 0;
  auto first = std::make_shared<Call>();
  auto request = MakeRequest(first, {});
  auto follow_up = std::make_shared<Call>();
  request->done = [&](GemmResult result) {
    EXPECT_LE(engine_->running_requests(), 1);  // its lane is free, or the waiting one has it
    EXPECT_FALSE(engine_->WaitIdle(SteadyClock::now()));
    EXPECT_TRUE(engine_->Submit(MakeRequest(follow_up, {.m = 0})).ok());
    engine_->Cancel(waiting_id);
    first->promise.set_value(std::move(result));
  };
  ASSERT_TRUE(engine_->Submit(std::move(request)).ok());
  backend.WaitForStarted(1);
  const auto waiting = Send({.deadline = SteadyClock::now() + std::chrono::hours(1)}, &waiting_id);
  backend.CompleteAll();
  EXPECT_TRUE(first->Wait().status.ok());
  EXPECT_TRUE(follow_up->Wait().status.ok());
  waiting->Wait();
}

TEST_F(EngineTest, ExplainsAPlanWithoutRunningIt) {
  ManualBackend& backend = AddBackend({.traits = H200Traits()});
  Start();
  GemmProblem problem;
  problem.m = problem.n = problem.k = 1024;
  problem.type_a = problem.type_b = problem.type_d = DType::kBF16;
  const StatusOr<Plan> plan = engine_->Explain(WithPackedLayouts(problem), {});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_GT(plan->stages, 1);
  EXPECT_EQ(engine_->Explain(WithPackedLayouts(problem), {.row = {}, .stages = 99, .split_k = {}})
                .status()
                .code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(backend.started(), 0);
}

TEST_F(EngineTest, WhatOneOfTwoEqualDevicesLearnsBothPlanWith) {
  DeviceTraits other = H200Traits(), larger = H200Traits();
  other.ordinal = 1, other.uuid = "GPU-1";
  larger.ordinal = 2, larger.sm_count = 144;
  AddBackend({.traits = H200Traits()});
  AddBackend({.traits = other});
  AddBackend({.traits = larger});
  Start();
  GemmProblem problem;
  problem.m = problem.n = problem.k = 1024;
  problem.type_a = problem.type_b = problem.type_d = DType::kBF16;
  problem = WithPackedLayouts(problem);
  const Plan slow{.row = RowByName("cp_async_64x64x64"), .stages = 1};
  ASSERT_TRUE(engine_->planner(1).Learn({problem, {{slow, 1e-3}}}));
  for (const int device : {0, 1}) {
    EXPECT_TRUE(SameLaunch(*engine_->planner(device).PlanFor(problem), slow)) << device;
  }
  EXPECT_FALSE(SameLaunch(*engine_->planner(2).PlanFor(problem), slow)) << "of another size";
  EXPECT_TRUE(SameLaunch(*engine_->Explain(problem, {}), slow));
}

TEST_F(EngineTest, ARequestRunsThePlanThatWasLearnt) {
  ManualBackend& backend = AddBackend({.traits = H200Traits()});
  Start();
  GemmProblem problem;
  problem.m = problem.n = problem.k = 512;
  problem.type_a = problem.type_b = problem.type_d = DType::kBF16;
  const Plan slow{.row = RowByName("cp_async_64x64x64"), .stages = 1};
  ASSERT_TRUE(engine_->planner(0).Learn({WithPackedLayouts(problem), {{slow, 1e-3}}}));
  const auto call = Send({.m = 512, .n = 512, .k = 512, .type = DType::kBF16});
  backend.WaitForStarted(1);
  backend.CompleteAll();
  const GemmResult result = call->Wait();
  ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  EXPECT_TRUE(SameLaunch(result.plan, slow)) << ToString(result.plan);
  EXPECT_EQ(result.plan.source, PlanSource::kMeasured);
}

}  // namespace
}  // namespace gemmd
