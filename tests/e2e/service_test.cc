// Every call of gemmd.v1 over the wire, on the CPU backend.
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "gemmd/v1/shared_memory.grpc.pb.h"
#include "gemmd/v1/tensor.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "kernels/core/numeric.h"
#include "kernels/core/reference_gemm.h"
#include "tests/e2e/async_call.h"
#include "tests/e2e/server_fixture.h"

namespace gemmd::testing {
namespace {

using grpc::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A problem with its operands, as a caller holds them.
struct Product {
  GemmProblem problem;
  std::string a, b, c, bias;
};

std::string RandomBytes(std::mt19937& random, DType type, int64_t count) {
  std::string bytes(static_cast<size_t>(count * SizeOf(type)), '\0');
  std::uniform_real_distribution<double> real(-1, 1);
  std::uniform_int_distribution<int> integer(-128, 127);
  auto* const base = reinterpret_cast<std::byte*>(bytes.data());
  for (int64_t i = 0; i < count; ++i) {
    StoreElement(base, type, i, type == DType::kI8 ? integer(random) : real(random));
  }
  return bytes;
}

Product RandomProduct(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI8};
  Product out;
  GemmProblem& p = out.problem;
  p.m = pick(1, 40);
  p.n = pick(1, 40);
  p.k = pick(1, 60);
  p.batch = pick(1, 3);
  p.op_a = pick(0, 1) == 0 ? Op::kN : Op::kT;
  p.op_b = pick(0, 1) == 0 ? Op::kN : Op::kT;
  p.type_a = p.type_b = p.type_d = kTypes[pick(0, 4)];
  if (p.type_a == DType::kI8) {
    p.type_d = DType::kI32;
  } else {
    p.alpha = 0.5 * pick(1, 4);
    p.beta = 0.25 * pick(0, 2);
    p.bias = static_cast<BiasAxis>(pick(0, 2));
    p.act = static_cast<Activation>(pick(0, 3));
  }
  p = WithPackedLayouts(p);
  out.a = RandomBytes(random, p.type_a, p.m * p.k * p.batch);
  out.b = RandomBytes(random, p.type_b, p.k * p.n * p.batch);
  if (p.beta != 0) out.c = RandomBytes(random, p.type_d, p.m * p.n * p.batch);
  if (p.bias != BiasAxis::kNone) out.bias = RandomBytes(random, p.type_d, p.bias_length());
  return out;
}

v1::GemmRequest ToRequest(const Product& product) {
  constexpr v1::DataType kWire[] = {v1::DATA_TYPE_F16, v1::DATA_TYPE_BF16,    v1::DATA_TYPE_F32,
                                    v1::DATA_TYPE_F64, v1::DATA_TYPE_F8_E4M3, v1::DATA_TYPE_F8_E5M2,
                                    v1::DATA_TYPE_I8,  v1::DATA_TYPE_I32};
  const GemmProblem& p = product.problem;
  v1::GemmRequest out;
  v1::Problem* problem = out.mutable_problem();
  problem->set_m(p.m);
  problem->set_n(p.n);
  problem->set_k(p.k);
  problem->set_batch(p.batch);
  if (p.op_a == Op::kT) problem->set_trans_a(v1::TRANSPOSE_TRANS);
  if (p.op_b == Op::kT) problem->set_trans_b(v1::TRANSPOSE_TRANS);
  problem->set_type_a(kWire[static_cast<int>(p.type_a)]);
  problem->set_alpha(p.alpha);
  problem->set_beta(p.beta);
  if (p.bias == BiasAxis::kPerRow) problem->set_bias_axis(v1::BIAS_AXIS_PER_ROW);
  problem->set_activation(static_cast<v1::Activation>(p.act));
  out.mutable_a()->set_inline_(product.a);
  out.mutable_b()->set_inline_(product.b);
  if (p.beta != 0) out.mutable_c()->set_inline_(product.c);
  if (p.bias != BiasAxis::kNone) out.mutable_bias()->set_inline_(product.bias);
  return out;
}

// Empty when `d` is the product; else what is wrong with it.
std::string Check(const Product& product, std::string d) {
  const auto bytes = [](const std::string& text) {
    return reinterpret_cast<const std::byte*>(text.data());
  };
  const auto expected = ResultBytes(product.problem);
  if (!expected.ok() || d.size() != static_cast<size_t>(*expected)) return "wrong size";
  HostOperands operands;
  operands.a = bytes(product.a);
  operands.b = bytes(product.b);
  operands.c = bytes(product.c);
  operands.bias = bytes(product.bias);
  operands.d = reinterpret_cast<std::byte*>(d.data());
  const Mismatch mismatch = CompareWithReference(product.problem, operands);
  return mismatch.ok ? "" : mismatch.ToString();
}

class ServiceTest : public ServerFixture {
 protected:
  void ExpectRefused(const v1::GemmRequest& request, StatusCode code, const std::string& field,
                     const std::string& text) {
    const grpc::Status status = Gemm(request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(text));
    google::rpc::Status details;
    google::rpc::BadRequest bad;
    ASSERT_TRUE(details.ParseFromString(status.error_details()));
    ASSERT_GE(details.details_size(), 1);
    ASSERT_TRUE(details.details(0).UnpackTo(&bad));
    EXPECT_EQ(bad.field_violations(0).field(), field);
  }
  void ExpectStillServes() {
    v1::GemmResponse response;
    const grpc::Status status = Gemm(OnesRequest(2, 2, 3), &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    float first = 0;
    ASSERT_EQ(response.d().size(), 4 * sizeof(float));
    std::memcpy(&first, response.d().data(), sizeof first);
    EXPECT_EQ(first, 3.0F);
  }
};

TEST_F(ServiceTest, ProductsEqualTheReference) {
  StartOnCpu();
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Product product = RandomProduct(seed);
    v1::GemmResponse response;
    const grpc::Status status = Gemm(ToRequest(product), &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(Check(product, response.d()), "") << ToString(product.problem);
  }
}

TEST_F(ServiceTest, ThirtyTwoCallersAtOnceEachGetTheirOwnProduct) {
  StartOnCpu();
  std::vector<std::string> wrong(32);
  std::vector<std::thread> callers;
  for (uint32_t i = 0; i < wrong.size(); ++i) {
    callers.emplace_back([this, i, &wrong] {
      const auto stub = v1::GemmService::NewStub(NewChannel());
      for (uint32_t round = 0; round < 5 && wrong[i].empty(); ++round) {
        const uint32_t seed = 1000 + 100 * i + round;
        const Product product = RandomProduct(seed);
        grpc::ClientContext context;
        SetDeadline(&context);
        // Of many connections made at once gRPC now and then fails one, and tries again.
        context.set_wait_for_ready(true);
        v1::GemmResponse response;
        const grpc::Status status = stub->Gemm(&context, ToRequest(product), &response);
        wrong[i] = status.ok() ? Check(product, response.d()) : status.error_message();
        if (!wrong[i].empty()) wrong[i] += " (seed " + std::to_string(seed) + ")";
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

TEST_F(ServiceTest, ReplySaysHowTheProductWasComputed) {
  StartOnCpu();
  v1::GemmRequest request = OnesRequest(8, 8, 8);
  request.set_request_id("mine-1");
  v1::GemmResponse response;
  ASSERT_TRUE(Gemm(request, &response).ok());
  const v1::Execution& execution = response.execution();
  EXPECT_EQ(execution.request_id(), "mine-1");
  EXPECT_EQ(execution.backend(), "cpu");
  EXPECT_EQ(execution.plan().kernel(), "openblas");
  EXPECT_EQ(execution.plan().limit(), v1::STAGE_LIMIT_NONE);
  EXPECT_EQ(execution.flops(), 1024);
  const auto nanos = [](const google::protobuf::Duration& time) {
    return time.seconds() * 1'000'000'000 + time.nanos();
  };
  EXPECT_GT(nanos(execution.phases().kernel()), 0);
  EXPECT_GE(nanos(execution.phases().total()), nanos(execution.phases().kernel()));
  EXPECT_THAT(log_text_.str(), AllOf(HasSubstr("id=mine-1"), HasSubstr("kernel=openblas")));
}

TEST_F(ServiceTest, ServerNamesRequestsThatHaveNoId) {
  StartOnCpu();
  std::set<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    v1::GemmResponse response;
    ASSERT_TRUE(Gemm(OnesRequest(1, 1, 1), &response).ok());
    EXPECT_FALSE(response.execution().request_id().empty());
    ids.insert(response.execution().request_id());
  }
  EXPECT_EQ(ids.size(), 3U);
}

TEST_F(ServiceTest, EmptyProductIsAValidEmptyResult) {
  StartOnCpu();
  v1::GemmResponse response;
  ASSERT_TRUE(Gemm(OnesRequest(0, 5, 4), &response).ok());
  EXPECT_TRUE(response.d().empty());
  EXPECT_EQ(response.execution().plan().kernel(), "none");
  EXPECT_EQ(response.execution().device(), -1);
}

TEST_F(ServiceTest, BadRequestsAreRefusedAndTheServerGoesOn) {
  StartOnCpu();
  v1::GemmRequest request = OnesRequest(3, 5, 4);
  request.mutable_a()->mutable_inline_()->pop_back();
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "a", "a has 47 bytes, expected 48");

  request = OnesRequest(3, 5, 4);
  request.mutable_problem()->set_m(-1);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "problem.m", "problem.m=-1");

  request = OnesRequest(3, 5, 4);
  request.mutable_problem()->set_m(int64_t{1} << 40);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "problem.m", "2147483647");

  request = OnesRequest(0, 0, 0);
  request.mutable_problem()->set_m(int64_t{1} << 20);
  request.mutable_problem()->set_n(int64_t{1} << 20);
  ExpectRefused(request, StatusCode::OUT_OF_RANGE, "d", "limit");

  request = OnesRequest(3, 5, 4);
  request.mutable_problem()->set_alpha(std::numeric_limits<double>::infinity());
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "problem.alpha", "finite");

  request = OnesRequest(3, 5, 4);
  request.mutable_plan()->set_kernel("cp_async_64x64x64");
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "plan.kernel", "cp_async_64x64x64");

  request = OnesRequest(3, 5, 4);
  request.mutable_a()->set_tensor("handle");
  ExpectRefused(request, StatusCode::UNIMPLEMENTED, "a.tensor", "a.inline");

  request = OnesRequest(4, 4, 1);
  request.mutable_problem()->set_type_a(v1::DATA_TYPE_F8_E4M3);
  request.mutable_a()->set_inline_(std::string(4, '\0'));
  request.mutable_b()->set_inline_(std::string(4, '\0'));
  const grpc::Status unbuilt = Gemm(request);
  EXPECT_EQ(unbuilt.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(unbuilt.error_message(), HasSubstr("e4m3"));
  ExpectStillServes();
}

TEST_F(ServiceTest, MessageAboveTheLimitIsResourceExhausted) {
  config_.max_message_bytes = 1 << 20;
  StartOnCpu();
  v1::GemmRequest request = OnesRequest(1, 1, 1);
  request.mutable_a()->set_inline_(std::string(2 << 20, 'x'));
  EXPECT_EQ(Gemm(request).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  ExpectStillServes();
}

TEST_F(ServiceTest, CompressedMessageIsRefused) {
  StartOnCpu();
  grpc::ClientContext context;
  SetDeadline(&context);
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::GemmResponse response;
  EXPECT_EQ(stub_->Gemm(&context, OnesRequest(64, 64, 64), &response).error_code(),
            StatusCode::UNIMPLEMENTED);
  ExpectStillServes();
}

TEST_F(ServiceTest, OversizeMetadataIsRefused) {
  StartOnCpu();
  grpc::ClientContext context;
  SetDeadline(&context);
  context.AddMetadata("x-large", std::string(64 << 10, 'x'));
  v1::GemmResponse response;
  // gRPC may end the connection that such a call came over.
  const auto stub = v1::GemmService::NewStub(NewChannel());
  EXPECT_FALSE(stub->Gemm(&context, OnesRequest(1, 1, 1), &response).ok());
  ExpectStillServes();
}

TEST_F(ServiceTest, DeadlineAlreadyPastIsDeadlineExceeded) {
  StartOnCpu();
  AsyncCall call(stub_.get(), OnesRequest(1, 1, 1),
                 std::chrono::system_clock::now() - std::chrono::seconds(1));
  EXPECT_EQ(call.Wait().error_code(), StatusCode::DEADLINE_EXCEEDED);
  ExpectStillServes();
}

TEST_F(ServiceTest, ServerInfoTellsLimitsTypesAndDevices) {
  StartOnCpu();
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::ServerInfo info;
  ASSERT_TRUE(info_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_EQ(info.build(), "abc Test");
  EXPECT_EQ(info.backend(), "cpu");
  EXPECT_FALSE(info.backend_reason().empty());
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_EQ(info.devices(0).lanes(), 2);
  EXPECT_EQ(info.limits().max_message_bytes(), 64 << 20);
  EXPECT_EQ(info.limits().max_extent(), kMaxExtent);
  EXPECT_FALSE(info.draining());
  EXPECT_GT(info.types_size(), 0);
  for (const v1::TypeSupport& types : info.types()) {  // what is announced is also accepted
    v1::GemmRequest request;
    request.mutable_problem()->set_m(1);
    request.mutable_problem()->set_n(1);
    request.mutable_problem()->set_type_a(types.type_a());
    request.mutable_problem()->set_type_b(types.type_b());
    request.mutable_problem()->set_type_d(types.type_d());
    request.mutable_problem()->set_compute_mode(types.compute_mode());
    const grpc::Status status = Gemm(request);
    EXPECT_TRUE(status.ok()) << types.ShortDebugString() << status.error_message();
  }
}

TEST_F(ServiceTest, KernelListMarksWhatRunsHere) {
  StartOnCpu();
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::ListKernelsResponse kernels;
  ASSERT_TRUE(info_->ListKernels(&context, {}, &kernels).ok());
  EXPECT_EQ(kernels.kernels_size(), kKernelRows);
  for (const v1::Kernel& kernel : kernels.kernels()) {
    EXPECT_EQ(kernel.usable(), kernel.name() == "openblas") << kernel.name();
  }
}

TEST_F(ServiceTest, ExplainPlanGivesPlanAndCandidates) {
  StartOnCpu();
  grpc::ClientContext context, bad_context;
  SetDeadline(&context);
  SetDeadline(&bad_context);
  v1::ExplainPlanRequest request;
  *request.mutable_problem() = OnesRequest(100, 100, 100).problem();
  v1::ExplainPlanResponse response;
  ASSERT_TRUE(info_->ExplainPlan(&context, request, &response).ok());
  EXPECT_EQ(response.plan().kernel(), "openblas");
  ASSERT_EQ(response.candidates_size(), 1);
  EXPECT_EQ(response.candidates(0).kernel(), "openblas");
  request.mutable_problem()->set_k(-4);
  const grpc::Status status = info_->ExplainPlan(&bad_context, request, &response);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("problem.k=-4"));
}

TEST_F(ServiceTest, StatisticsCountWhatWasServedAndRefused) {
  StartOnCpu();
  ASSERT_TRUE(Gemm(OnesRequest(8, 8, 8)).ok());
  ASSERT_TRUE(Gemm(OnesRequest(8, 8, 8)).ok());
  ASSERT_FALSE(Gemm(v1::GemmRequest()).ok());
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::Statistics statistics;
  ASSERT_TRUE(info_->GetStatistics(&context, {}, &statistics).ok());
  EXPECT_EQ(statistics.requests_admitted(), 2);
  EXPECT_EQ(statistics.requests_completed(), 2);
  EXPECT_EQ(statistics.requests_failed(), 0);
  EXPECT_EQ(statistics.requests_rejected(), 1);
  EXPECT_EQ(statistics.flops(), 2048);
  ASSERT_EQ(statistics.kernels_size(), 1);
  EXPECT_EQ(statistics.kernels(0).kernel(), "openblas");
  EXPECT_EQ(statistics.kernels(0).launches(), 2);
}

TEST_F(ServiceTest, UnbuiltCallsSayWhatToUseInstead) {
  StartOnCpu();
  const auto expect = [](const grpc::Status& status, const std::string& instead) {
    EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(status.error_message(), HasSubstr(instead));
  };
  const auto tensors = v1::TensorService::NewStub(channel_);
  const auto memory = v1::SharedMemoryService::NewStub(channel_);
  grpc::ClientContext contexts[5];
  for (grpc::ClientContext& context : contexts) SetDeadline(&context);
  const std::string gemm = "GemmService.Gemm";

  expect(stub_->GemmStream(&contexts[0])->Finish(), gemm);
  v1::TensorInfo info;
  expect(tensors->PutTensor(&contexts[1], &info)->Finish(), gemm);
  expect(tensors->GetTensor(&contexts[2], {})->Finish(), gemm);
  v1::ListTensorsResponse list;
  expect(tensors->ListTensors(&contexts[3], {}, &list), gemm);
  v1::SharedMemoryRegion region;
  expect(memory->RegisterSharedMemory(&contexts[4], {}, &region), gemm);
}

// The reflection library registers its own messages, but installs no header for them.
TEST_F(ServiceTest, ReflectionListsEveryService) {
  StartOnCpu();
  namespace pb = google::protobuf;
  const std::string package = "grpc.reflection.v1alpha.";
  const auto make = [&](const std::string& name) {
    const auto* type = pb::DescriptorPool::generated_pool()->FindMessageTypeByName(package + name);
    return std::unique_ptr<pb::Message>(
        pb::MessageFactory::generated_factory()->GetPrototype(type)->New());
  };
  const auto request = make("ServerReflectionRequest"), response = make("ServerReflectionResponse");
  request->GetReflection()->SetString(
      request.get(), request->GetDescriptor()->FindFieldByName("list_services"), "*");
  grpc::Slice slice(request->SerializeAsString());
  grpc::ByteBuffer buffer(&slice, 1), reply;

  grpc::GenericStub generic(channel_);
  grpc::ClientContext context;
  SetDeadline(&context);
  grpc::CompletionQueue queue;
  const auto call = generic.PrepareCall(
      &context, "/" + package + "ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  const auto step = [&] { return queue.Next(&tag, &ok) && ok; };
  call->StartCall(nullptr);
  ASSERT_TRUE(step());
  call->Write(buffer, nullptr);
  ASSERT_TRUE(step());
  call->Read(&reply, nullptr);
  ASSERT_TRUE(step());
  call->WritesDone(nullptr);
  ASSERT_TRUE(step());
  grpc::Status status;
  call->Finish(&status, nullptr);
  ASSERT_TRUE(step());

  grpc::Slice bytes;
  ASSERT_TRUE(reply.DumpToSingleSlice(&bytes).ok());
  ASSERT_TRUE(response->ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())));
  const std::string text = response->DebugString();
  for (const char* name :
       {"gemmd.v1.GemmService", "gemmd.v1.ServerService", "gemmd.v1.TensorService",
        "gemmd.v1.SharedMemoryService", "grpc.health.v1.Health"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST_F(ServiceTest, TakenPortIsNamedWhenASecondServerStarts) {
  StartOnCpu();
  Config second = config_;
  second.listen.port = std::stoi(server_->grpc_address().substr(sizeof("127.0.0.1")));
  StatusOr<BackendSet> backends = MakeBackends(config_.backend);
  ASSERT_TRUE(backends.ok());
  const auto server = Server::Start(second, *std::move(backends), {}, log_);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.status().code(), gemmd::StatusCode::kFailedPrecondition);
  EXPECT_THAT(server.status().message(), HasSubstr(server_->grpc_address()));
}

}  // namespace
}  // namespace gemmd::testing
