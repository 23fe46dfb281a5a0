// GemmClient::Profile, and stall samples in statistics, against a service that says what a test
// wants.
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "client/gemm_client.h"
#include "client/wire.h"
#include "tests/support/fake_tuner.h"

namespace gemmd {
namespace {

GemmProblem ProblemToProfile() {
  GemmProblem problem;
  problem.m = 16;
  problem.n = 64;
  problem.k = 32;
  problem.op_b = Op::kT;
  problem.type_a = problem.type_b = problem.type_d = DType::kBF16;
  return WithPackedLayouts(problem);
}

class ClientProfileTest : public ::testing::Test {
 protected:
  ClientProfileTest() : server_("client_profile_test") {
    client_ = *GemmClient::Create({.target = server_.target()});
  }

  FakeTunerServer server_;
  FakeTuner& fake_ = server_.tuner();
  std::unique_ptr<GemmClient> client_;
};

void AddReason(google::protobuf::RepeatedPtrField<v1::StallSamples>* reasons,
               const std::string& reason, int64_t samples) {
  v1::StallSamples* const added = reasons->Add();
  added->set_reason(reason);
  added->set_samples(samples);
}

TEST_F(ClientProfileTest, AProfileSendsProblemPlanAndDurationAndReadsTheAnswer) {
  fake_.profile.mutable_plan()->set_kernel("wgmma");
  fake_.profile.mutable_plan()->set_stages(4);
  fake_.profile.mutable_median()->set_nanos(1500);
  fake_.profile.set_dropped_samples(7);
  v1::FunctionProfile* const function = fake_.profile.add_functions();
  function->set_kernel("wgmma");
  function->set_samples(10);
  AddReason(function->mutable_reasons(), "barrier", 6);
  v1::ProgramRange* const range = function->add_ranges();
  range->set_first_offset(0x100);
  range->set_last_offset(0x130);
  range->set_samples(6);
  range->set_note("barrier of the block");
  AddReason(range->mutable_reasons(), "barrier", 5);

  CallOptions options;
  options.kernel = "wgmma";
  options.stages = 4;
  options.split_k = 2;
  const StatusOr<ClientProfile> profile =
      client_->Profile({.problem = ProblemToProfile(), .duration_seconds = 2.5}, {}, options);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_EQ(profile->plan.kernel, "wgmma");
  EXPECT_EQ(profile->plan.stages, 4);
  EXPECT_EQ(profile->median_seconds, 1.5e-6);
  EXPECT_EQ(profile->dropped_samples, 7);
  ASSERT_EQ(profile->functions.size(), 1U);
  const ClientFunctionProfile& read = profile->functions[0];
  EXPECT_EQ(read.kernel, "wgmma");
  EXPECT_EQ(read.samples, 10);
  ASSERT_EQ(read.reasons.size(), 1U);
  EXPECT_EQ(read.reasons[0].reason, "barrier");
  EXPECT_EQ(read.reasons[0].samples, 6);
  ASSERT_EQ(read.ranges.size(), 1U);
  EXPECT_EQ(read.ranges[0].first_offset, 0x100U);
  EXPECT_EQ(read.ranges[0].last_offset, 0x130U);
  EXPECT_EQ(read.ranges[0].samples, 6);
  EXPECT_EQ(read.ranges[0].note, "barrier of the block");
  ASSERT_EQ(read.ranges[0].reasons.size(), 1U);
  EXPECT_EQ(read.ranges[0].reasons[0].samples, 5);

  const v1::ProfileRequest request = fake_.profile_request();
  EXPECT_EQ(request.problem().m(), 16);
  EXPECT_EQ(request.problem().trans_b(), v1::TRANSPOSE_TRANS);
  EXPECT_EQ(request.problem().type_a(), v1::DATA_TYPE_BF16);
  EXPECT_EQ(request.plan().kernel(), "wgmma");
  EXPECT_EQ(request.plan().stages(), 4);
  EXPECT_EQ(request.plan().split_k(), 2);
  EXPECT_EQ(request.duration().seconds(), 2);
  EXPECT_EQ(request.duration().nanos(), 500000000);
}

TEST_F(ClientProfileTest, NoDurationIsLeftUnset) {
  ASSERT_TRUE(client_->Profile({.problem = ProblemToProfile()}).ok());
  EXPECT_FALSE(fake_.profile_request().has_duration());
}

// The second is the server's, where none is asked for.
TEST_F(ClientProfileTest, TheDurationIsAddedToTheTimeout) {
  fake_.hold = true;
  CallOptions options;
  options.timeout = std::chrono::milliseconds(20);
  for (const auto& [seconds, timeout] : {std::pair(0.03, "50 ms"), std::pair(0.0, "1020 ms")}) {
    const StatusOr<ClientProfile> late =
        client_->Profile({.problem = ProblemToProfile(), .duration_seconds = seconds}, {}, options);
    EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_NE(late.status().message().find("(timeout " + std::string(timeout) + ")"),
              std::string::npos)
        << late.status().ToString();
  }
}

TEST_F(ClientProfileTest, AStopEndsAProfileAtBothEnds) {
  fake_.hold = true;
  std::stop_source stop;
  fake_.on_call = [&] { stop.request_stop(); };
  const StatusOr<ClientProfile> ended =
      client_->Profile({.problem = ProblemToProfile()}, stop.get_token());
  EXPECT_EQ(ended.status().ToString(), "CANCELLED: the caller ended the call");
  server_.WaitUntilIdle();
  EXPECT_EQ(fake_.cancelled(), 1);
}

TEST_F(ClientProfileTest, AStopBeforeAProfileCancelsIt) {
  fake_.hold = true;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(client_->Profile({.problem = ProblemToProfile()}, stop.get_token()).status().code(),
            StatusCode::kCancelled);
}

TEST_F(ClientProfileTest, AStopEndsACallForStatistics) {
  fake_.hold = true;
  fake_.statistics = [](int, v1::Statistics*) { return grpc::Status::OK; };
  std::stop_source stop;
  fake_.on_call = [&] { stop.request_stop(); };
  EXPECT_EQ(client_->Statistics({}, stop.get_token()).status().ToString(),
            "CANCELLED: the caller ended the call");
}

TEST_F(ClientProfileTest, AProfilesStatusIsTheServersAndItIsNotTriedAgain) {
  fake_.ends_with = {grpc::StatusCode::UNAVAILABLE, "draining"};
  EXPECT_EQ(client_->Profile({.problem = ProblemToProfile()}).status().ToString(),
            "UNAVAILABLE: draining");
  EXPECT_EQ(fake_.calls(), 1);
}

TEST_F(ClientProfileTest, BadProfilesNeverReachTheServer) {
  for (const double seconds :
       {-1.0, 0.009, 60.1, std::numeric_limits<double>::infinity(), std::nan("")}) {
    const Status status =
        client_->Profile({.problem = ProblemToProfile(), .duration_seconds = seconds}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << seconds;
    EXPECT_EQ(status.field(), "duration") << seconds;
    EXPECT_EQ(status.message(),
              "duration=" + std::to_string(seconds) + " s is not between 0.01 and 60, nor 0");
  }
  GemmProblem bad = ProblemToProfile();
  bad.m = -1;
  EXPECT_EQ(client_->Profile({.problem = bad}).status().field(), "problem.m");
  CallOptions options;
  options.kernel = "\xff";
  EXPECT_EQ(client_->Profile({.problem = ProblemToProfile()}, {}, options).status().field(),
            "kernel");
  options = {};
  options.timeout = Milliseconds(0);
  EXPECT_EQ(client_->Profile({.problem = ProblemToProfile()}, {}, options).status().field(),
            "timeout");
  EXPECT_EQ(fake_.calls(), 0);
}

TEST(WireProfileTest, StatisticsHaveTheirStallSamples) {
  v1::Statistics statistics;
  statistics.set_pc_sampling_up(true);
  statistics.mutable_pc_sampled()->set_seconds(3);
  v1::KernelStallSamples* const kernel = statistics.add_stall_samples();
  kernel->set_kernel("sum_parts");
  AddReason(kernel->mutable_reasons(), "long_scoreboard", 9);
  const ClientStatistics read = wire::FromProto(statistics);
  EXPECT_TRUE(read.pc_sampling_up);
  EXPECT_EQ(read.pc_sampled_seconds, 3);
  ASSERT_EQ(read.stall_samples.size(), 1U);
  EXPECT_EQ(read.stall_samples[0].kernel, "sum_parts");
  ASSERT_EQ(read.stall_samples[0].reasons.size(), 1U);
  EXPECT_EQ(read.stall_samples[0].reasons[0].reason, "long_scoreboard");
  EXPECT_EQ(read.stall_samples[0].reasons[0].samples, 9);
}

TEST(WireProfileTest, CountsBelowZeroAreTakenForZero) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  v1::ProfileResponse response;
  response.set_dropped_samples(-1);
  v1::FunctionProfile* const function = response.add_functions();
  function->set_samples(kLeast);
  AddReason(function->mutable_reasons(), "", -1);
  AddReason(function->mutable_reasons(), "", kMost);
  v1::ProgramRange* const range = function->add_ranges();
  range->set_first_offset(std::numeric_limits<uint64_t>::max());
  range->set_samples(-5);
  const ClientProfile read = wire::FromProto(response);
  EXPECT_EQ(read.dropped_samples, 0);
  EXPECT_EQ(read.functions[0].samples, 0);
  EXPECT_EQ(read.functions[0].reasons[0].samples, 0);
  EXPECT_EQ(read.functions[0].reasons[1].samples, kMost);
  EXPECT_EQ(read.functions[0].ranges[0].samples, 0);
  EXPECT_EQ(read.functions[0].ranges[0].first_offset, std::numeric_limits<uint64_t>::max());

  v1::Statistics statistics;
  AddReason(statistics.add_stall_samples()->mutable_reasons(), "barrier", kLeast);
  EXPECT_EQ(wire::FromProto(statistics).stall_samples[0].reasons[0].samples, 0);
}

}  // namespace
}  // namespace gemmd
