#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/gemm_client.h"
#include "client/retry_policy.h"
#include "client/wire.h"
#include "gemmd/v1/gemm.grpc.pb.h"
#include "gemmd/v1/server.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/core/mutex.h"

namespace gemmd {
namespace {

using ::testing::Test;

grpc::Status WithDetails(grpc::StatusCode code, const std::string& message,
                         const google::protobuf::Message& detail) {
  google::rpc::Status details;
  details.set_code(code);
  details.add_details()->PackFrom(detail);
  return {code, message, details.SerializeAsString()};
}

grpc::Status UnavailableRetryIn(Milliseconds delay) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(delay.count() / 1000);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay.count() % 1000 * 1000000));
  return WithDetails(grpc::StatusCode::UNAVAILABLE, "draining", info);
}

// Answers each Gemm with the next of `statuses` (the last one again and again), and OK with
// `result`; keeps the last request.
class FakeGemm : public v1::GemmService::Service {
 public:
  grpc::Status Gemm(grpc::ServerContext*, const v1::GemmRequest* request,
                    v1::GemmResponse* response) override {
    const size_t call = static_cast<size_t>(calls_++);
    MutexLock lock(mu_);
    request_ = *request;
    const grpc::Status status = statuses[std::min(call, statuses.size() - 1)];
    if (status.ok()) *response = result;
    return status;
  }
  int calls() const { return calls_; }
  v1::GemmRequest request() {
    MutexLock lock(mu_);
    return request_;
  }

  std::vector<grpc::Status> statuses = {grpc::Status::OK};  // set before the first call
  v1::GemmResponse result;                                  // likewise

 private:
  std::atomic<int> calls_{0};
  Mutex mu_;
  v1::GemmRequest request_ GUARDED_BY(mu_);
};

class FakeServer : public v1::ServerService::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override {
    info->set_backend("fake");
    info->mutable_limits()->set_max_message_bytes(max_message_bytes);
    v1::TypeSupport* known = info->add_types();
    known->set_type_a(v1::DATA_TYPE_I8);
    known->set_type_b(v1::DATA_TYPE_I8);
    known->set_type_d(v1::DATA_TYPE_I32);
    known->set_accumulate(v1::DATA_TYPE_I32);
    info->add_types()->set_type_a(static_cast<v1::DataType>(99));
    return grpc::Status::OK;
  }
  grpc::Status ExplainPlan(grpc::ServerContext*, const v1::ExplainPlanRequest* request,
                           v1::ExplainPlanResponse* response) override {
    response->mutable_plan()->set_kernel(request->plan().kernel());
    response->mutable_plan()->set_stages(request->plan().stages());
    response->mutable_plan()->set_limit(v1::STAGE_LIMIT_SHARED_MEMORY);
    response->mutable_plan()->set_source(static_cast<v1::PlanSource>(77));
    response->mutable_plan()->set_pair(true);
    response->mutable_plan()->set_registers(168);
    response->mutable_plan()->set_waves(1.25);
    response->add_candidates()->set_kernel("second");
    return grpc::Status::OK;
  }

  int64_t max_message_bytes = int64_t{1} << 20;
};

class ScriptedHealth : public grpc::health::v1::Health::Service {
 public:
  using Response = grpc::health::v1::HealthCheckResponse;
  grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest* request,
                     Response* response) override {
    if (!request->service().empty()) return {grpc::StatusCode::NOT_FOUND, "no such service"};
    response->set_status(Response::NOT_SERVING);
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext* context,
                     const grpc::health::v1::HealthCheckRequest* request,
                     grpc::ServerWriter<Response>* writer) override {
    while (request->service() == "silent" && !context->IsCancelled()) std::this_thread::yield();
    for (const auto status : {Response::SERVING, Response::NOT_SERVING, Response::SERVING}) {
      Response response;
      response.set_status(status);
      if (!writer->Write(response)) break;
    }
    return grpc::Status::OK;
  }
};

class GemmClientTest : public Test {
 protected:
  void SetUp() override {
    target_ = "unix:" + ::testing::TempDir() + "client_test." + std::to_string(getpid());
    grpc::ServerBuilder builder;
    builder.AddListeningPort(target_, grpc::InsecureServerCredentials());
    builder.RegisterService(&gemm_);
    builder.RegisterService(&info_);
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    client_ = *GemmClient::Create({.target = target_, .initial_backoff = Milliseconds(1)});
    problem_.m = 2;
    problem_.n = 3;
    problem_.k = 4;
    problem_ = WithPackedLayouts(problem_);
    gemm_.result.set_d(std::string(24, 'd'));
  }
  void TearDown() override { server_->Shutdown(std::chrono::system_clock::now()); }

  HostOperands Operands() {
    return {Bytes(a_), Bytes(b_), Bytes(c_), nullptr, reinterpret_cast<std::byte*>(d_.data())};
  }
  static const std::byte* Bytes(const std::vector<float>& values) {
    return reinterpret_cast<const std::byte*>(values.data());
  }

  FakeGemm gemm_;
  FakeServer info_;
  ScriptedHealth health_;
  std::string target_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<GemmClient> client_;
  GemmProblem problem_;
  std::vector<float> a_ = std::vector<float>(64, 1), b_ = a_, c_ = a_;
  std::vector<char> d_ = std::vector<char>(24, '-');
};

TEST_F(GemmClientTest, SendsAnUnavailableProductAgainUntilItSucceeds) {
  gemm_.statuses = {UnavailableRetryIn(Milliseconds(1)), UnavailableRetryIn(Milliseconds(1)),
                    grpc::Status::OK};
  const StatusOr<ClientResult> result = client_->Gemm(problem_, Operands());
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->attempts, 3);
  EXPECT_EQ(gemm_.calls(), 3);
  EXPECT_EQ(std::string(d_.begin(), d_.end()), std::string(24, 'd'));
}

TEST_F(GemmClientTest, SendsARefusedProductOnceAndLeavesDAlone) {
  google::rpc::BadRequest detail;
  detail.add_field_violations()->set_field("a.ld");
  gemm_.statuses = {WithDetails(grpc::StatusCode::INVALID_ARGUMENT, "a.ld=1 is short", detail)};
  const StatusOr<ClientResult> result = client_->Gemm(problem_, Operands());
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(result.status().field(), "a.ld");
  EXPECT_EQ(result.status().message(), "a.ld=1 is short");
  EXPECT_EQ(gemm_.calls(), 1);
  EXPECT_EQ(std::string(d_.begin(), d_.end()), std::string(24, '-'));
}

TEST_F(GemmClientTest, DoesNotRetryAFullQueueButSaysWhenTo) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_nanos(1500000);
  gemm_.statuses = {WithDetails(grpc::StatusCode::RESOURCE_EXHAUSTED, "queue full", info)};
  const StatusOr<ClientResult> result = client_->Gemm(problem_, Operands());
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(result.status().retry_after(), Milliseconds(2));  // rounded up
  EXPECT_EQ(gemm_.calls(), 1);
}

TEST_F(GemmClientTest, StopsAfterMaxRetries) {
  gemm_.statuses = {UnavailableRetryIn(Milliseconds(1))};
  CallOptions options;
  options.max_retries = 2;
  const StatusOr<ClientResult> result = client_->Gemm(problem_, Operands(), options);
  EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(result.status().message().find("attempt 3"), std::string::npos)
      << result.status().message();
  EXPECT_EQ(gemm_.calls(), 3);
}

TEST_F(GemmClientTest, DoesNotWaitPastItsDeadlineForARetry) {
  gemm_.statuses = {UnavailableRetryIn(std::chrono::hours(1))};
  const auto start = std::chrono::steady_clock::now();
  const StatusOr<ClientResult> result = client_->Gemm(problem_, Operands());
  EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(gemm_.calls(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(GemmClientTest, PacksPaddedOperandsAndLeavesOutUnreadOnes) {
  problem_.a.ld = 7;
  problem_.a.batch_stride = 14;
  for (size_t i = 0; i < a_.size(); ++i) a_[i] = static_cast<float>(i);
  ASSERT_TRUE(client_->Gemm(problem_, Operands()).ok());
  const v1::GemmRequest request = gemm_.request();
  std::vector<float> sent(8);
  ASSERT_EQ(request.a().inline_().size(), 32U);
  std::memcpy(sent.data(), request.a().inline_().data(), 32);
  EXPECT_EQ(sent, (std::vector<float>{0, 1, 2, 3, 7, 8, 9, 10}));
  EXPECT_EQ(request.a().ld(), 4);
  EXPECT_FALSE(request.has_c());
  EXPECT_FALSE(request.has_bias());
}

TEST_F(GemmClientTest, UntrimmedOperandsGoAsTheyLie) {
  problem_.a.ld = 7;
  problem_.a.batch_stride = 14;
  CallOptions options;
  options.trim = false;
  ASSERT_TRUE(client_->Gemm(problem_, Operands(), options).ok());
  const v1::GemmRequest request = gemm_.request();
  EXPECT_EQ(request.a().inline_().size(), (7U + 4U) * 4U);
  EXPECT_EQ(request.a().ld(), 7);
  EXPECT_EQ(request.c().inline_().size(), 24U);
}

TEST_F(GemmClientTest, ASharedOperandIsSentOnce) {
  problem_.batch = 3;
  problem_.b.batch_stride = 0;
  gemm_.result.set_d(std::string(72, 'd'));
  d_.resize(72);
  ASSERT_TRUE(client_->Gemm(problem_, Operands()).ok());
  const v1::GemmRequest request = gemm_.request();
  EXPECT_EQ(request.a().inline_().size(), 3U * 8U * 4U);
  EXPECT_EQ(request.b().inline_().size(), 12U * 4U);
  EXPECT_TRUE(request.b().has_batch_stride());
  EXPECT_EQ(request.b().batch_stride(), 0);
}

TEST_F(GemmClientTest, PlanConstraintsAndRequestIdTravel) {
  CallOptions options;
  options.request_id = "mine";
  options.kernel = "simt";
  options.stages = 3;
  options.split_k = 2;
  ASSERT_TRUE(client_->Gemm(problem_, Operands(), options).ok());
  const v1::GemmRequest request = gemm_.request();
  EXPECT_EQ(request.request_id(), "mine");
  EXPECT_EQ(request.plan().kernel(), "simt");
  EXPECT_EQ(request.plan().stages(), 3);
  EXPECT_EQ(request.plan().split_k(), 2);
}

TEST_F(GemmClientTest, ExecutionDetailsComeBack) {
  v1::Execution* execution = gemm_.result.mutable_execution();
  execution->set_backend("cuda");
  execution->set_device(1);
  execution->mutable_plan()->set_kernel("cp_async");
  execution->mutable_plan()->set_limit(v1::STAGE_LIMIT_K_TILES);
  execution->mutable_plan()->set_source(v1::PLAN_SOURCE_FORCED);
  execution->mutable_phases()->mutable_kernel()->set_nanos(1500);
  execution->mutable_stalls()->set_wait_full(9);
  execution->set_flops(48);
  const StatusOr<ClientResult> result = client_->Gemm(problem_, Operands());
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->backend, "cuda");
  EXPECT_EQ(result->device, 1);
  EXPECT_EQ(result->plan.kernel, "cp_async");
  EXPECT_EQ(result->plan.limit, "k_tiles");
  EXPECT_EQ(result->plan.source, "forced");
  EXPECT_EQ(result->phases.kernel, Nanoseconds(1500));
  EXPECT_TRUE(result->stalls.measured);
  EXPECT_EQ(result->stalls.wait_full, 9U);
  EXPECT_EQ(result->flops, 48);
  EXPECT_GT(result->round_trip, Nanoseconds(0));
}

TEST_F(GemmClientTest, AResultOfTheWrongSizeIsNotWritten) {
  gemm_.result.set_d(std::string(23, 'd'));
  const StatusOr<ClientResult> result = client_->Gemm(problem_, Operands());
  EXPECT_EQ(result.status().code(), StatusCode::kInternal);
  EXPECT_EQ(std::string(d_.begin(), d_.end()), std::string(24, '-'));
}

TEST_F(GemmClientTest, TheServersMessageLimitHolds) {
  problem_.m = 512;
  problem_.k = 1024;  // a: 2 MiB, the server takes 1 MiB
  problem_ = WithPackedLayouts(problem_);
  const StatusOr<ClientResult> result = client_->Gemm(problem_, Operands());
  EXPECT_EQ(result.status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(result.status().field(), "a");
  EXPECT_NE(result.status().message().find("a 2097152"), std::string::npos)
      << result.status().message();
  EXPECT_NE(result.status().message().find("1048576"), std::string::npos)
      << result.status().message();
  EXPECT_EQ(gemm_.calls(), 0);
}

TEST_F(GemmClientTest, AResultAboveTheServersLimitIsRefusedBeforeTheCall) {
  problem_.m = 1024;
  problem_.n = 1024;  // d: 4 MiB of fp32 out of two small operands
  problem_.k = 1;
  problem_ = WithPackedLayouts(problem_);
  const StatusOr<ClientResult> result = client_->Gemm(problem_, Operands());
  EXPECT_EQ(result.status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(result.status().field(), "d");
  EXPECT_EQ(gemm_.calls(), 0);
}

TEST_F(GemmClientTest, BadProblemsNeverReachTheServer) {
  problem_.alpha = std::numeric_limits<double>::infinity();
  EXPECT_EQ(client_->Gemm(problem_, Operands()).status().field(), "problem.alpha");
  problem_.alpha = 1;
  HostOperands missing = Operands();
  missing.b = nullptr;
  EXPECT_EQ(client_->Gemm(problem_, missing).status().field(), "b");
  missing = Operands();
  missing.d = nullptr;
  EXPECT_EQ(client_->Gemm(problem_, missing).status().field(), "d");
  CallOptions options;
  options.timeout = Milliseconds(0);
  EXPECT_EQ(client_->Gemm(problem_, Operands(), options).status().field(), "timeout");
  EXPECT_EQ(gemm_.calls(), 0);
}

TEST_F(GemmClientTest, TypesUnknownHereAreLeftOutOfServerInfo) {
  const StatusOr<ClientServerInfo> info = client_->Info();
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->backend, "fake");
  ASSERT_EQ(info->types.size(), 1U);
  EXPECT_EQ(info->types[0].a, DType::kI8);
  EXPECT_EQ(info->types[0].d, DType::kI32);
}

TEST_F(GemmClientTest, PlansAreExplained) {
  CallOptions options;
  options.kernel = "first";
  options.stages = 3;
  const StatusOr<ClientExplanation> explanation = client_->Plan(problem_, options);
  ASSERT_TRUE(explanation.ok()) << explanation.status().ToString();
  EXPECT_EQ(explanation->plan.kernel, "first");
  EXPECT_EQ(explanation->plan.stages, 3);
  EXPECT_EQ(explanation->plan.limit, "shared_memory");
  EXPECT_EQ(explanation->plan.source, "77");  // a newer server's word
  EXPECT_TRUE(explanation->plan.pair);
  EXPECT_EQ(explanation->plan.registers, 168);
  EXPECT_EQ(explanation->plan.waves, 1.25);
  ASSERT_EQ(explanation->candidates.size(), 1U);
  EXPECT_EQ(explanation->candidates[0].kernel, "second");
}

TEST_F(GemmClientTest, CallsThatTheServerLacksSaySo) {
  EXPECT_EQ(client_->ListKernels().status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(client_->Statistics().status().code(), StatusCode::kUnimplemented);
}

TEST_F(GemmClientTest, HealthIsChecked) {
  const StatusOr<Serving> serving = client_->Health("");
  ASSERT_TRUE(serving.ok()) << serving.status().ToString();
  EXPECT_EQ(*serving, Serving::kNotServing);
  EXPECT_EQ(client_->Health("nobody").status().code(), StatusCode::kNotFound);
}

TEST_F(GemmClientTest, HealthIsWatchedUntilTheCallerHasSeenEnough) {
  std::vector<Serving> seen;
  const auto two = [&](Serving serving) {
    seen.push_back(serving);
    return seen.size() < 2;
  };
  EXPECT_TRUE(client_->WatchHealth("", two).ok());
  EXPECT_EQ(seen, (std::vector<Serving>{Serving::kServing, Serving::kNotServing}));
}

TEST_F(GemmClientTest, AWatchThatHearsNothingEndsWithItsTimeout) {
  const auto any = [](Serving) { return true; };
  CallOptions options;
  options.timeout = Milliseconds(50);
  const Status status = client_->WatchHealth("silent", any, options);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_NE(status.message().find("no answer within 50 ms"), std::string::npos);
}

TEST_F(GemmClientTest, ConnectsToAServer) {
  EXPECT_TRUE(client_->Connect(std::chrono::seconds(30)).ok());
}

TEST(GemmClientAloneTest, NobodyThereIsSaidWithinTheTimeout) {
  const std::string target = "unix:" + ::testing::TempDir() + "nobody." + std::to_string(getpid());
  const auto client = GemmClient::Create({.target = target});
  ASSERT_TRUE(client.ok());
  const auto start = std::chrono::steady_clock::now();
  const Status status = (*client)->Connect(Milliseconds(300));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(target), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("300 ms"), std::string::npos) << status.message();
}

// Pointers that nobody may follow: a copy of any part would fault.
TEST(GemmClientAloneTest, AProductAboveEveryMessageIsRefusedWithoutTouchingItsOperands) {
  const auto client = GemmClient::Create({.target = "unix:/nowhere"});
  ASSERT_TRUE(client.ok());
  GemmProblem problem;
  problem.m = 1 << 15;
  problem.n = 1;
  problem.k = 3 << 13;  // a: 3 GiB of fp32
  problem = WithPackedLayouts(problem);
  void* const page = mmap(nullptr, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const nowhere = static_cast<std::byte*>(page);
  const StatusOr<ClientResult> result =
      (*client)->Gemm(problem, {nowhere, nowhere, nullptr, nullptr, nowhere});
  EXPECT_EQ(result.status().code(), StatusCode::kOutOfRange);
  EXPECT_NE(result.status().message().find("3221225472"), std::string::npos)
      << result.status().message();
  EXPECT_NE(result.status().message().find("limit of 2147418111"), std::string::npos)
      << result.status().message();
  munmap(page, 1);
}

TEST(GemmClientAloneTest, TargetsWithoutAPortAreRefused) {
  for (const char* target : {"", "host", "host:", ":50051", "host:0", "host:65536", "host:http",
                             "::1", "::1:50051", "[::1]", "[::1]50051", "unix:", "a:b:1"}) {
    const auto client = GemmClient::Create({.target = target});
    EXPECT_EQ(client.status().code(), StatusCode::kInvalidArgument) << target;
  }
  for (const char* target : {"host:1", "127.0.0.1:50051", "[::1]:50051", "unix:/tmp/x"}) {
    EXPECT_TRUE(GemmClient::Create({.target = target}).ok()) << target;
  }
}

TEST(RetryPolicyTest, OnlyUnavailableIsRetried) {
  const RetryPolicy policy;
  for (int code = 1; code <= 16; ++code) {
    const Status status(static_cast<StatusCode>(code), "");
    EXPECT_EQ(policy.NextDelay(status, 1, std::chrono::hours(1), 0).has_value(),
              status.code() == StatusCode::kUnavailable)
        << code;
  }
}

TEST(RetryPolicyTest, BackoffDoublesToItsCeilingWithJitterInItsUpperHalf) {
  const RetryPolicy policy{.max_retries = 100};
  const auto delay = [&](int attempts, double jitter) {
    return policy.NextDelay(Unavailable(""), attempts, std::chrono::hours(1), jitter)->count();
  };
  EXPECT_EQ(delay(1, 0), 25);
  EXPECT_EQ(delay(1, 0.999999), 49);
  EXPECT_EQ(delay(2, 0), 50);
  EXPECT_EQ(delay(3, 0), 100);
  EXPECT_EQ(delay(50, 0), 1000);
}

TEST(RetryPolicyTest, TheServersDelayIsTheLeast) {
  const RetryPolicy policy;
  const auto later = Status(StatusCode::kUnavailable, "").WithRetryAfter(Milliseconds(700));
  EXPECT_EQ(policy.NextDelay(later, 1, std::chrono::hours(1), 0), Milliseconds(700));
  EXPECT_EQ(policy.NextDelay(later, 1, Milliseconds(700), 0), std::nullopt);
}

TEST(WireTest, InterleavedMatricesOfABatchArePacked) {
  // Two heads side by side in rows of 6: ld 6, stride 3.
  const MatrixLayout layout{.rows = 2, .cols = 3, .ld = 6, .batch_stride = 3};
  std::vector<std::byte> bytes(12);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const auto operand = wire::PlanOperand("a", layout, 2, DType::kI8, bytes.data(), false);
  ASSERT_TRUE(operand.ok());
  EXPECT_EQ(operand->bytes, 12);
  v1::Matrix matrix;
  wire::Fill(*operand, &matrix);
  EXPECT_EQ(matrix.inline_(), std::string("\0\1\2\6\7\10\3\4\5\11\12\13", 12));
  EXPECT_EQ(matrix.ld(), 3);
  EXPECT_EQ(matrix.batch_stride(), 6);
}

TEST(WireTest, NonsenseInAnswersDoesNotOverflow) {
  v1::Execution execution;
  auto* const kernel = execution.mutable_phases()->mutable_kernel();
  kernel->set_seconds(std::numeric_limits<int64_t>::min());
  kernel->set_nanos(std::numeric_limits<int32_t>::min());
  EXPECT_LT(wire::FromProto(execution).phases.kernel, Nanoseconds(0));
  const grpc::Status garbled(grpc::StatusCode::NOT_FOUND, "gone", "\xff\xff not a message");
  EXPECT_EQ(wire::FromGrpc(garbled).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace gemmd
