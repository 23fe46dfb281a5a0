// Profile over the wire, and what a server says of its sampling.
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "tests/e2e/tuning_fixture.h"
#include "tests/support/http_get.h"
#include "tests/support/manual_sampler.h"

namespace gemmd::testing {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;
using ::testing::Not;

// A call that waits for its server.
class ProfileInFlight {
 public:
  ProfileInFlight(v1::ServerService::Stub* stub, v1::ProfileRequest request)
      : request_(std::move(request)) {
    context_.set_deadline(std::chrono::system_clock::now() + kLongEnough);
    stub->async()->Profile(&context_, &request_, &response_,
                           [this](grpc::Status status) { ended_.set_value(std::move(status)); });
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Wait() { return ended_.get_future().get(); }  // once

 private:
  const v1::ProfileRequest request_;
  grpc::ClientContext context_;
  v1::ProfileResponse response_;
  std::promise<grpc::Status> ended_;
};

class ProfileCallTest : public TuningTest {
 protected:
  ProfileCallTest() { config_.backend.pc_sampling_percent = Config{}.backend.pc_sampling_percent; }

  void StartOnSampledH200() {
    StartOnManual({.memory_bytes = 1 << 30, .traits = H200Traits(), .sampler = sampler_});
  }

  static v1::ProfileRequest Request() {
    v1::ProfileRequest request;
    *request.mutable_problem() = MakeProblem(512, 512, 512, v1::DATA_TYPE_BF16);
    request.mutable_duration()->set_nanos(10'000'000);
    return request;
  }
  grpc::Status Profile(const v1::ProfileRequest& request, v1::ProfileResponse* response = nullptr) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::ProfileResponse ignored;
    return info_->Profile(&context, request, response == nullptr ? &ignored : response);
  }
  v1::Statistics Statistics() {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::Statistics statistics;
    EXPECT_TRUE(info_->GetStatistics(&context, {}, &statistics).ok());
    return statistics;
  }
  // The server has heard of the end of what ran.
  void ExpectProfilesAgain() {
    manual_->ReleaseTimers();
    grpc::Status again;
    Until([&] {
      return (again = Profile(Request())).error_code() != StatusCode::RESOURCE_EXHAUSTED;
    });
    EXPECT_TRUE(again.ok()) << again.error_message();
  }

  const std::shared_ptr<ManualSampler> sampler_ = std::make_shared<ManualSampler>();
};

TEST_F(ProfileCallTest, ACpuHasNothingToSampleAndNothingToWarnOf) {
  config_.metrics_enabled = true;
  config_.metrics.port = 0;
  StartOnCpu();
  v1::ProfileRequest request = Request();
  request.mutable_problem()->set_type_a(v1::DATA_TYPE_F32);
  const grpc::Status status = Profile(request);
  EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status.error_message(), "the cpu backend has no program counters to sample");
  EXPECT_FALSE(Statistics().pc_sampling_up());
  EXPECT_EQ(Statistics().stall_samples_size(), 0);
  const std::string address = server_->metrics_address();
  EXPECT_THAT(HttpGet(std::atoi(address.c_str() + address.rfind(':') + 1), "/metrics"),
              HasSubstr("\ngemmd_pc_sampling_up 0\n"));
  EXPECT_THAT(log_text_.str(), Not(HasSubstr("[warning]")));
}

TEST_F(ProfileCallTest, ReplyAndStatisticsHaveWhatWasSampled) {
  PcSamples samples = SamplesOf(2, {40, 2});
  samples.functions[0].ranges[0].range = {.first = 16, .last = 64, .kind = CodeKind::kWaitFull};
  samples.dropped = 3;
  sampler_->SetSamples(samples);
  StartOnSampledH200();
  v1::ProfileRequest request = Request();
  request.mutable_plan()->set_stages(2);
  v1::ProfileResponse response;
  const grpc::Status status = Profile(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.plan().stages(), 2);
  EXPECT_EQ(response.median().nanos(), 1'000'000) << "the manual backend's";
  EXPECT_EQ(response.dropped_samples(), 3);
  ASSERT_EQ(response.functions_size(), 1);
  EXPECT_EQ(response.functions(0).samples(), 42);
  ASSERT_EQ(response.functions(0).ranges_size(), 1);
  EXPECT_EQ(response.functions(0).ranges(0).note(), "wait for a full stage");
  EXPECT_EQ(response.functions(0).ranges(0).reasons(0).reason(), "long_scoreboard");

  const v1::Statistics statistics = Statistics();
  EXPECT_TRUE(statistics.pc_sampling_up());
  EXPECT_GE(statistics.pc_sampled().nanos(), 10'000'000);
  ASSERT_EQ(statistics.stall_samples_size(), 1);
  EXPECT_EQ(statistics.stall_samples(0).kernel(), response.functions(0).kernel());
  EXPECT_GE(statistics.stall_samples(0).reasons(0).samples(), 40);
}

TEST_F(ProfileCallTest, WhatIsInTheWayIsLoggedOnceAndStopsNothingElse) {
  StartOnManual({.memory_bytes = 1 << 30,
                 .traits = H200Traits(),
                 .sampling_status = FailedPrecondition("no privilege")});
  const grpc::Status status = Profile(Request());
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "no privilege");
  EXPECT_FALSE(Statistics().pc_sampling_up());
  const std::string log = log_text_.str();
  const std::string warning = "device 0: its kernels' stall reasons are not sampled: no privilege";
  EXPECT_THAT(log, HasSubstr("[warning] " + warning));
  EXPECT_EQ(log.find(warning), log.rfind(warning));
  manual_->CompleteAll();
  EXPECT_TRUE(Gemm(OnesRequest(4, 4, 4)).ok());
}

TEST_F(ProfileCallTest, AServerThatDoesNotSampleIsSilentAndProfilesWhereItCan) {
  config_.backend.pc_sampling_percent = 0;
  StartOnSampledH200();
  EXPECT_EQ(sampler_->reads(), 0);
  EXPECT_TRUE(Profile(Request()).ok());
  EXPECT_EQ(sampler_->reads(), 2) << "before and after";
  EXPECT_FALSE(Statistics().pc_sampling_up());
  EXPECT_THAT(log_text_.str(), Not(HasSubstr("[warning]")));
}

TEST_F(ProfileCallTest, MalformedRequestsAreRefusedWithTheirField) {
  config_.backend.pc_sampling_percent = 0;  // nothing is read but for a profile
  StartOnSampledH200();
  const auto expect = [&](const v1::ProfileRequest& request, StatusCode code,
                          const std::string& field, const std::string& part) {
    const grpc::Status status = Profile(request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_EQ(FieldOf(status), field);
    EXPECT_THAT(status.error_message(), HasSubstr(part));
  };
  expect({}, StatusCode::INVALID_ARGUMENT, "problem", "problem is missing");
  v1::ProfileRequest bad = Request();
  bad.mutable_problem()->set_k(-4);
  expect(bad, StatusCode::INVALID_ARGUMENT, "problem.k", "problem.k=-4");
  bad = Request();
  bad.mutable_problem()->set_m(0);
  expect(bad, StatusCode::INVALID_ARGUMENT, "problem", "the least is 1");
  bad = Request();
  *bad.mutable_problem() = MakeProblem(1 << 20, 1 << 20, 8, v1::DATA_TYPE_F32);
  expect(bad, StatusCode::RESOURCE_EXHAUSTED, "", "there are 1073741824");
  bad = Request();
  bad.mutable_problem()->set_type_a(v1::DATA_TYPE_F8_E4M3);
  expect(bad, StatusCode::UNIMPLEMENTED, "problem.type_a", "e4m3");
  bad = Request();
  bad.mutable_plan()->set_kernel("openblas");
  expect(bad, StatusCode::INVALID_ARGUMENT, "plan.kernel", "openblas");
  bad = Request();
  bad.mutable_duration()->set_seconds(61);
  expect(bad, StatusCode::INVALID_ARGUMENT, "duration", "at most 60 s");
  EXPECT_TRUE(manual_->timed().empty());
  EXPECT_EQ(sampler_->reads(), 0);
}

TEST_F(ProfileCallTest, ACallerWhoGivesUpEndsItAndFreesTheTuner) {
  StartOnSampledH200();
  manual_->HoldTimers();
  ProfileInFlight call(info_.get(), Request());
  manual_->WaitForTimers(1);
  const grpc::Status second = Profile(Request());
  EXPECT_EQ(second.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(second.error_message(), HasSubstr("a profile is running"));
  call.Cancel();
  EXPECT_EQ(call.Wait().error_code(), StatusCode::CANCELLED);
  ExpectProfilesAgain();
}

TEST_F(ProfileCallTest, ADeadlineEndsItToo) {
  StartOnSampledH200();
  manual_->HoldTimers();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  v1::ProfileResponse response;
  EXPECT_EQ(info_->Profile(&context, Request(), &response).error_code(),
            StatusCode::DEADLINE_EXCEEDED);
  ExpectProfilesAgain();
}

TEST_F(ProfileCallTest, DrainEndsItSoon) {
  StartOnSampledH200();
  manual_->HoldTimers();
  ProfileInFlight call(info_.get(), Request());
  manual_->WaitForTimers(1);
  EXPECT_EQ(server_->tuning(), "a profile");
  server_->StartDrain();
  const grpc::Status status = call.Wait();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the server is draining");
  EXPECT_TRUE(server_->WaitIdle(SteadyClock::now() + kLongEnough));
  EXPECT_EQ(Profile(Request()).error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(ProfileCallTest, ACutConnectionEndsIt) {
  StartOnSampledH200();
  manual_->HoldTimers();
  ProfileInFlight call(info_.get(), Request());
  manual_->WaitForTimers(1);
  server_->Shutdown();  // returns when the call has ended
  EXPECT_FALSE(call.Wait().ok());
}

TEST_F(ProfileCallTest, ProductsAreServedMeanwhile) {
  StartOnSampledH200();
  manual_->HoldTimers();
  ProfileInFlight call(info_.get(), Request());
  manual_->WaitForTimers(1);
  manual_->CompleteAll();
  EXPECT_TRUE(Gemm(OnesRequest(4, 4, 4)).ok());
  manual_->ReleaseTimers();
  EXPECT_TRUE(call.Wait().ok());
}

}  // namespace
}  // namespace gemmd::testing
