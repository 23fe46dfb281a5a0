// More work than lanes, callers that give up, and the end of the server.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "tests/e2e/async_call.h"
#include "tests/e2e/server_fixture.h"

namespace gemmd::testing {
namespace {

using grpc::StatusCode;
using grpc::health::v1::HealthCheckResponse;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::system_clock;

class OverloadTest : public ServerFixture {
 protected:
  std::unique_ptr<AsyncCall> Call(std::chrono::milliseconds timeout = kLongEnough) {
    return std::make_unique<AsyncCall>(stub_.get(), OnesRequest(4, 4, 4), Clock::now() + timeout);
  }

  // One call on the only lane.
  std::unique_ptr<AsyncCall> OccupyLane() {
    const int before = manual_->started();
    auto call = Call();
    manual_->WaitForStarted(before + 1);
    return call;
  }

  void UntilQueued(int count) {
    Until([&] { return server_->engine().queued_requests() == count; });
  }

  static bool HasRetryInfo(const grpc::Status& status) {
    google::rpc::Status details;
    google::rpc::RetryInfo retry;
    if (!details.ParseFromString(status.error_details())) return false;
    for (const auto& detail : details.details()) {
      if (detail.UnpackTo(&retry))
        return retry.retry_delay().nanos() > 0 || retry.retry_delay().seconds() > 0;
    }
    return false;
  }
};

TEST_F(OverloadTest, FullQueueAnswersResourceExhaustedWithRetryInfo) {
  config_.max_queued_requests = 2;
  StartOnManual();
  const auto running = OccupyLane();
  const auto first = Call(), second = Call();
  UntilQueued(2);
  const grpc::Status refused = Call()->Wait();
  EXPECT_EQ(refused.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), AllOf(HasSubstr("queue"), HasSubstr("2")));
  EXPECT_TRUE(HasRetryInfo(refused));
  manual_->CompleteAll();
  EXPECT_TRUE(running->Wait().ok());
  EXPECT_TRUE(first->Wait().ok());
  EXPECT_TRUE(second->Wait().ok());
}

TEST_F(OverloadTest, DeadlineInTheQueueEndsTheCallAndItsPlace) {
  StartOnManual();
  const auto running = OccupyLane();
  const auto waiting = Call(std::chrono::milliseconds(50));
  EXPECT_EQ(waiting->Wait().error_code(), StatusCode::DEADLINE_EXCEEDED);
  UntilQueued(0);
  EXPECT_FALSE(running->ended());
  manual_->CompleteAll();
  EXPECT_TRUE(running->Wait().ok());
  EXPECT_EQ(manual_->started(), 1);
}

TEST_F(OverloadTest, CancelledCallLeavesTheQueueAndNeverStarts) {
  StartOnManual();
  const auto running = OccupyLane();
  const auto waiting = Call();
  UntilQueued(1);
  waiting->Cancel();
  EXPECT_EQ(waiting->Wait().error_code(), StatusCode::CANCELLED);
  UntilQueued(0);
  manual_->CompleteAll();
  EXPECT_TRUE(running->Wait().ok());
  EXPECT_EQ(manual_->started(), 1);
}

TEST_F(OverloadTest, CancelOfARunningCallHarmsNobody) {
  StartOnManual();
  const auto running = OccupyLane();
  const auto waiting = Call();
  UntilQueued(1);
  running->Cancel();
  EXPECT_EQ(running->Wait().error_code(), StatusCode::CANCELLED);
  manual_->CompleteAll();
  EXPECT_TRUE(waiting->Wait().ok());
}

// Hours of work on a CPU in a message of a few hundred KiB: one product, asked for two million
// times.
TEST_F(OverloadTest, WorkPastItsDeadlineLeavesTheLanesFree) {
  config_.backend.lanes = 2;
  StartOnCpu();
  v1::GemmRequest hog = OnesRequest(1, 1, 50'000);
  hog.mutable_problem()->set_batch(2'000'000);
  hog.mutable_a()->set_batch_stride(0);
  hog.mutable_b()->set_batch_stride(0);
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  std::vector<std::unique_ptr<AsyncCall>> hogs;
  for (int i = 0; i < 4; ++i) {
    hogs.push_back(std::make_unique<AsyncCall>(stub_.get(), hog, deadline));
  }
  Until([&] { return server_->engine().running_requests() == 2; });
  for (const auto& call : hogs) {
    EXPECT_EQ(call->Wait().error_code(), StatusCode::DEADLINE_EXCEEDED);
  }
  Until([&] { return server_->engine().running_requests() == 0; });
  EXPECT_LT(Clock::now() - deadline, std::chrono::seconds(10));
  EXPECT_TRUE(Gemm(OnesRequest(2, 2, 2)).ok());
}

TEST_F(OverloadTest, ACutEndsWhatRunsWithUnavailable) {
  StartOnManual();
  const auto running = OccupyLane();
  server_->StartDrain();
  server_->CutQueue();
  EXPECT_EQ(manual_->stops_requested(), 1);
  manual_->CompleteNext({.status = gemmd::Cancelled("stopped"), .times = {}, .stalls = {}});
  const grpc::Status cut = running->Wait();
  EXPECT_EQ(cut.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(HasRetryInfo(cut));
}

TEST_F(OverloadTest, TwoHundredCallersThatVanishLeaveNothingBehind) {
  StartOnManual({.lanes = 2});
  std::atomic<bool> stop{false};
  std::thread completer([&] {
    while (!stop) {
      if (!manual_->CompleteNext()) std::this_thread::yield();
    }
  });
  for (int i = 0; i < 200; ++i) {
    const auto stub = v1::GemmService::NewStub(NewChannel());
    // Vanishes before, during and after the send, the wait and the run.
    AsyncCall call(stub.get(), OnesRequest(4, 4, 4), Clock::now() + kLongEnough);
    const auto vanish = SteadyClock::now() + std::chrono::microseconds(25 * (i % 40));
    while (SteadyClock::now() < vanish) std::this_thread::yield();
    call.Cancel();
  }
  Until([&] {
    return server_->engine().running_requests() == 0 && server_->engine().queued_requests() == 0;
  });
  stop = true;
  completer.join();
  manual_->CompleteAll();
  EXPECT_TRUE(Gemm(OnesRequest(2, 2, 2)).ok());
  EXPECT_EQ(manual_->usage().lanes_in_use, 0);
}

TEST_F(OverloadTest, DeviceErrorIsInternalAndTheNextCallRuns) {
  StartOnManual();
  const auto failing = OccupyLane();
  manual_->CompleteNext({.status = Internal("illegal address"), .times = {}, .stalls = {}});
  EXPECT_EQ(failing->Wait().error_code(), StatusCode::INTERNAL);
  manual_->CompleteAll();
  EXPECT_TRUE(Gemm(OnesRequest(2, 2, 2)).ok());
}

TEST_F(OverloadTest, LostDeviceFailsWhatWaitsAndRunsWithUnavailable) {
  StartOnManual();
  const auto running = OccupyLane();
  const auto waiting = Call();
  UntilQueued(1);
  EXPECT_TRUE(server_->healthy());
  manual_->SetHealthy(false);
  EXPECT_FALSE(server_->healthy());
  manual_->CompleteNext({.status = Internal("device gone"), .times = {}, .stalls = {}});
  EXPECT_EQ(running->Wait().error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(waiting->Wait().error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(HasRetryInfo(waiting->Wait()));
  EXPECT_EQ(Call()->Wait().error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(OverloadTest, DrainFinishesWhatWasAdmittedAndRefusesTheRest) {
  StartOnManual();
  const auto running = OccupyLane();
  std::vector<std::unique_ptr<AsyncCall>> waiting;
  for (int i = 0; i < 20; ++i) waiting.push_back(Call());
  UntilQueued(20);

  server_->StartDrain();
  EXPECT_EQ(Health(""), HealthCheckResponse::NOT_SERVING);
  const grpc::Status refused = Call()->Wait();
  EXPECT_EQ(refused.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(HasRetryInfo(refused));
  EXPECT_FALSE(server_->WaitIdle(SteadyClock::now()));

  manual_->CompleteAll();
  EXPECT_TRUE(server_->WaitIdle(SteadyClock::now() + kLongEnough));
  EXPECT_TRUE(running->Wait().ok());
  for (const auto& call : waiting) EXPECT_TRUE(call->Wait().ok());
}

TEST_F(OverloadTest, CutFailsWhatWaitsWithUnavailable) {
  StartOnManual();
  const auto running = OccupyLane();
  const auto waiting = Call();
  UntilQueued(1);
  server_->StartDrain();
  server_->CutQueue();
  const grpc::Status cut = waiting->Wait();
  EXPECT_EQ(cut.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(HasRetryInfo(cut));
  manual_->CompleteAll();
  EXPECT_TRUE(running->Wait().ok());
}

TEST_F(OverloadTest, HealthChecksKnowTheirNamesOnly) {
  StartOnManual();
  EXPECT_EQ(Health(""), HealthCheckResponse::SERVING);
  EXPECT_EQ(Health("gemmd.v1.GemmService"), HealthCheckResponse::SERVING);
  grpc::ClientContext context;
  SetDeadline(&context);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("gemmd.v1.NoSuchService");
  HealthCheckResponse response;
  EXPECT_EQ(health_->Check(&context, request, &response).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(OverloadTest, HealthWatchSeesTheDrainAndDoesNotHoldItUp) {
  StartOnManual();
  grpc::ClientContext known_context, unknown_context;
  SetDeadline(&known_context);
  SetDeadline(&unknown_context);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("gemmd.v1.GemmService");
  const auto known = health_->Watch(&known_context, request);
  request.set_service("gemmd.v1.NoSuchService");
  const auto unknown = health_->Watch(&unknown_context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(known->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  ASSERT_TRUE(unknown->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);

  server_->StartDrain();
  ASSERT_TRUE(known->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  ASSERT_TRUE(server_->WaitIdle(SteadyClock::now() + kLongEnough));
  const auto start = SteadyClock::now();
  server_->Shutdown();
  EXPECT_LT(SteadyClock::now() - start, std::chrono::seconds(5));
  EXPECT_FALSE(known->Read(&response));
}

}  // namespace
}  // namespace gemmd::testing
