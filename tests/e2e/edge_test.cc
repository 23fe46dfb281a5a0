// What a hostile or careless caller can do to a server: deadlines beyond any clock, bytes that are
// no message, sizes at the limit, replies that nobody reads, calls during its end.
#include <atomic>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpc/support/time.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "kernels/plan/kernel_table.h"
#include "server/rpc/codec.h"
#include "tests/e2e/async_call.h"
#include "tests/e2e/server_fixture.h"
#include "tests/e2e/unread_call.h"

namespace gemmd::testing {
namespace {

using grpc::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::system_clock;

class EdgeTest : public ServerFixture {
 protected:
  grpc::Status Raw(const std::string& bytes, bool with_message = true) {
    grpc::GenericStub generic(channel_);
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, with_message ? 1 : 0);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> ended;
    generic.UnaryCall(&context, "/gemmd.v1.GemmService/Gemm", {}, &request, &response,
                      [&](grpc::Status status) { ended.set_value(std::move(status)); });
    return ended.get_future().get();
  }

  // A message limit of 64 KiB and results of up to half as much.
  static constexpr int64_t kLimit = 64 << 10;
};

TEST_F(EdgeTest, DeadlinesBeyondAnyClockAreNone) {
  StartOnCpu();
  for (const int64_t hours :
       {100'000, 2'061'702, 2'061'703, 2'562'047, 2'562'048, 9'999'999, 99'999'999}) {
    SCOPED_TRACE(hours);
    grpc::ClientContext context;
    context.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_hours(hours, GPR_TIMESPAN)));
    v1::GemmResponse response;
    const grpc::Status status = stub_->Gemm(&context, OnesRequest(1, 1, 1), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST_F(EdgeTest, BytesThatAreNoMessageAreInvalidArgument) {
  StartOnCpu();
  const std::string whole = OnesRequest(2, 2, 2).SerializeAsString();
  for (const std::string& bytes : {std::string("\x0a\xff\xff\xff\xff\x0f garbage"),
                                   whole.substr(0, whole.size() - 1), std::string("\xff")}) {
    const grpc::Status status = Raw(bytes);
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(),
                AllOf(HasSubstr("request of " + std::to_string(bytes.size()) + " bytes"),
                      HasSubstr("gemmd.v1.GemmRequest")));
  }
  EXPECT_EQ(Raw("").error_code(), StatusCode::INVALID_ARGUMENT);  // no problem
  EXPECT_TRUE(Gemm(OnesRequest(2, 2, 2)).ok());
}

TEST_F(EdgeTest, RequestOfTheLimitIsTakenAndOneByteMoreIsNot) {
  config_.max_message_bytes = kLimit;
  StartOnCpu();
  v1::GemmRequest request = OnesRequest(0, 0, 0);
  request.mutable_problem()->set_m(1);
  request.mutable_problem()->set_n(1);
  request.mutable_problem()->set_type_a(v1::DATA_TYPE_I8);
  const auto resize = [&](int64_t k) {
    request.mutable_problem()->set_k(k);
    request.mutable_a()->set_inline_(std::string(static_cast<size_t>(k), '\1'));
    request.mutable_b()->set_inline_(std::string(static_cast<size_t>(k), '\1'));
  };
  request.set_request_id("x");
  resize(32'000);
  const auto missing = static_cast<int64_t>(kLimit) - static_cast<int64_t>(request.ByteSizeLong());
  resize(32'000 + missing / 2);
  while (request.ByteSizeLong() < kLimit) request.set_request_id(request.request_id() + "x");
  ASSERT_EQ(request.ByteSizeLong(), kLimit);
  const grpc::Status taken = Gemm(request);
  EXPECT_TRUE(taken.ok()) << taken.error_message();
  request.set_request_id(request.request_id() + "x");
  ASSERT_EQ(request.ByteSizeLong(), kLimit + 1);
  EXPECT_EQ(Gemm(request).error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(EdgeTest, CallerThatReceivesNoMoreThanTheLimitGetsTheLargestResult) {
  config_.max_message_bytes = kLimit;
  StartOnCpu();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kLimit);
  const auto stub = v1::GemmService::NewStub(grpc::CreateCustomChannel(
      server_->grpc_address(), grpc::InsecureChannelCredentials(), arguments));
  const auto gemm = [&](int64_t n, v1::GemmResponse* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::GemmRequest request = OnesRequest(1, n, 0);
    request.set_request_id(std::string(64, 'x'));
    return stub->Gemm(&context, request, response);
  };
  const int64_t largest = (kLimit - 1024) / 4;
  v1::GemmResponse response;
  const grpc::Status taken = gemm(largest, &response);
  ASSERT_TRUE(taken.ok()) << taken.error_message();
  EXPECT_EQ(response.d().size(), static_cast<size_t>(4 * largest));
  EXPECT_LE(response.ByteSizeLong(), static_cast<size_t>(kLimit));
  const grpc::Status refused = gemm(largest + 1, &response);
  EXPECT_EQ(refused.error_code(), StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(refused.error_message(), AllOf(HasSubstr("d has"), HasSubstr("64512")));
}

TEST(ReplyOverheadTest, NoExecutionRecordIsLargerThanTheRoomForIt) {
  constexpr auto kLong = Nanoseconds::max();
  GemmProblem problem;
  problem.m = problem.n = problem.k = problem.batch = kMaxExtent;
  GemmResult result;
  result.backend = "a backend";
  result.device = result.lane = -1;
  result.plan.stages = result.plan.split_k = result.plan.resident_blocks = -1;
  result.plan.smem_bytes = -1;
  result.plan.predicted_seconds = 1e300;
  result.times = {.decode = kLong,
                  .queue = kLong,
                  .plan = kLong,
                  .stage = kLong,
                  .h2d = kLong,
                  .kernel = kLong,
                  .d2h = kLong,
                  .unstage = kLong,
                  .total = kLong};
  result.stalls.measured = true;
  result.stalls.wait_full = result.stalls.wait_empty = result.stalls.mainloop =
      result.stalls.epilogue = result.stalls.k_tiles = std::numeric_limits<uint64_t>::max();
  for (int row = 0; row < kKernelRows; ++row) {
    result.plan.row = row;
    v1::GemmResponse response;
    *response.mutable_execution() = EncodeExecution(std::string(64, 'x'), problem, result);
    response.set_d("x");
    constexpr size_t kLongestLength = 4;  // more than the one byte for the length of d
    EXPECT_LE(response.ByteSizeLong() + kLongestLength, size_t{kReplyOverheadBytes}) << row;
  }
}

TEST_F(EdgeTest, CallsThatDescribeTheServerFitTheSmallestLimit) {
  config_.max_message_bytes = kLimit;
  StartOnCpu();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kLimit);
  const auto info = v1::ServerService::NewStub(grpc::CreateCustomChannel(
      server_->grpc_address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext contexts[3];
  for (grpc::ClientContext& context : contexts) SetDeadline(&context);
  v1::ServerInfo server;
  v1::ListKernelsResponse kernels;
  v1::Statistics statistics;
  EXPECT_TRUE(info->GetServerInfo(&contexts[0], {}, &server).ok());
  EXPECT_TRUE(info->ListKernels(&contexts[1], {}, &kernels).ok());
  EXPECT_TRUE(info->GetStatistics(&contexts[2], {}, &statistics).ok());
}

TEST_F(EdgeTest, RefusalsCarryTheValidIdOfTheCallerInTheLog) {
  StartOnCpu();
  v1::GemmRequest request = OnesRequest(2, 2, 2);
  request.set_request_id("mine.7");
  request.mutable_problem()->set_k(-1);
  EXPECT_FALSE(Gemm(request).ok());
  EXPECT_THAT(log_text_.str(), HasSubstr("id=mine.7 refused"));
  request.set_request_id("bad\nid");
  EXPECT_FALSE(Gemm(request).ok());
  EXPECT_THAT(log_text_.str(), HasSubstr("id=- refused"));
}

TEST_F(EdgeTest, RepliesThatNobodyReadsAreHeldWithinTheBudgetAlone) {
  constexpr int64_t kReply = int64_t{16} << 20;
  config_.max_reply_bytes = 4 * kReply;
  StartOnCpu();
  std::vector<std::unique_ptr<UnreadCall>> unread;
  for (int i = 0; i < 4; ++i) {
    unread.push_back(std::make_unique<UnreadCall>(NewChannel(), OnesRequest(2048, 2048, 0)));
  }
  Until([&] { return server_->reply_bytes() == 4 * kReply; });
  const grpc::Status refused = Gemm(OnesRequest(1, 1, 1));
  EXPECT_EQ(refused.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr(std::to_string(4 * kReply)));
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.ParseFromString(refused.error_details()));
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_TRUE(details.details(0).UnpackTo(&retry));

  EXPECT_TRUE(unread[0]->Finish().ok());  // late, and whole
  EXPECT_GT(unread[0]->response_bytes(), static_cast<size_t>(kReply));
  unread[1]->Cancel();
  Until([&] { return server_->reply_bytes() == 2 * kReply; });
  EXPECT_TRUE(Gemm(OnesRequest(1, 1, 1)).ok());
  unread.clear();
  Until([&] { return server_->reply_bytes() == 0; });
}

TEST_F(EdgeTest, AnUnreadReplyKeepsNoProductWaitingAndEndsWithTheServer) {
  StartOnCpu();
  const UnreadCall unread(NewChannel(), OnesRequest(2048, 2048, 0));
  Until([&] { return server_->open_calls() == 1 && server_->engine().running_requests() == 0; });
  server_->StartDrain();
  EXPECT_TRUE(server_->WaitProducts(SteadyClock::now() + kLongEnough));
  EXPECT_FALSE(server_->WaitIdle(SteadyClock::now()));
  server_->Shutdown();
  EXPECT_EQ(server_->open_calls(), 0);
  EXPECT_EQ(server_->reply_bytes(), 0);
}

TEST_F(EdgeTest, CallersDuringTheEndSeeUnavailableAndNothingElse) {
  StartOnCpu();
  std::atomic<int> wrong{0}, unavailable{0}, served{0};
  std::vector<std::thread> callers;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < 12; ++i) channels.push_back(NewChannel());
  for (const auto& channel : channels) {
    callers.emplace_back([&, channel] {
      const auto stub = v1::GemmService::NewStub(channel);
      for (int refusals = 0; refusals < 20;) {
        grpc::ClientContext context;
        SetDeadline(&context);
        v1::GemmResponse response;
        const grpc::Status status = stub->Gemm(&context, OnesRequest(32, 32, 32), &response);
        if (status.ok()) {
          ++served;
        } else if (status.error_code() == StatusCode::UNAVAILABLE) {
          ++unavailable;
          // Refusals before the end come by the thousand; those of the end are what counts.
          if (channel->GetState(false) != GRPC_CHANNEL_READY) ++refusals;
        } else {
          ++wrong;
          ADD_FAILURE() << status.error_code() << ": " << status.error_message();
          return;
        }
      }
    });
  }
  Until([&] { return served > 100; });
  server_->StartDrain();
  EXPECT_TRUE(server_->WaitIdle(SteadyClock::now() + kLongEnough));
  server_->Shutdown();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(unavailable, 0);
}

}  // namespace
}  // namespace gemmd::testing
