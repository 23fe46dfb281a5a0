#include "server/rpc/codec.h"

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "server/rpc/grpc_status.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMaxResult = 1 << 20;

// D (3, 5) = A (3, 4) B (4, 5) in f32, packed.
v1::GemmRequest Valid() {
  v1::GemmRequest request;
  v1::Problem* problem = request.mutable_problem();
  problem->set_m(3);
  problem->set_n(5);
  problem->set_k(4);
  problem->set_type_a(v1::DATA_TYPE_F32);
  request.mutable_a()->set_inline_(std::string(3 * 4 * 4, 'a'));
  request.mutable_b()->set_inline_(std::string(4 * 5 * 4, 'b'));
  return request;
}

DecodedGemm DecodeOk(const v1::GemmRequest& request) {
  StatusOr<DecodedGemm> decoded = DecodeGemm(request, kMaxResult);
  EXPECT_TRUE(decoded.ok()) << decoded.status().ToString();
  return decoded.ok() ? *decoded : DecodedGemm{};
}

TEST(CodecTest, OperandsAreViewsIntoTheMessage) {
  v1::GemmRequest request = Valid();
  request.mutable_problem()->set_beta(1);
  request.mutable_c()->set_inline_(std::string(3 * 5 * 4, 'c'));
  request.mutable_bias()->set_inline_(std::string(5 * 4, 'x'));
  const DecodedGemm decoded = DecodeOk(request);
  const auto* a = reinterpret_cast<const std::byte*>(request.a().inline_().data());
  EXPECT_EQ(decoded.operands.a, a);
  EXPECT_EQ(static_cast<const void*>(decoded.operands.b), request.b().inline_().data());
  EXPECT_EQ(static_cast<const void*>(decoded.operands.c), request.c().inline_().data());
  EXPECT_EQ(static_cast<const void*>(decoded.operands.bias), request.bias().inline_().data());
  EXPECT_EQ(decoded.operands.d, nullptr);
  EXPECT_EQ(decoded.bytes, 48 + 80 + 60 + 20 + 60);
}

TEST(CodecTest, AbsentFieldsTakeTheirDefaults) {
  const GemmProblem problem = DecodeOk(Valid()).problem;
  EXPECT_EQ(problem.batch, 1);
  EXPECT_EQ(problem.alpha, 1.0);
  EXPECT_EQ(problem.beta, 0.0);
  EXPECT_EQ(problem.type_b, DType::kF32);
  EXPECT_EQ(problem.type_d, DType::kF32);
  EXPECT_EQ(problem.bias, BiasAxis::kNone);
  EXPECT_EQ(problem.a, (MatrixLayout{.rows = 3, .cols = 4, .ld = 4, .batch_stride = 12}));
  EXPECT_EQ(problem.b, (MatrixLayout{.rows = 4, .cols = 5, .ld = 5, .batch_stride = 20}));
  EXPECT_EQ(problem.c, (MatrixLayout{.rows = 3, .cols = 5, .ld = 5, .batch_stride = 15}));
}

TEST(CodecTest, ResultTypeDefaultsFollowTheOperands) {
  constexpr std::pair<v1::DataType, DType> kDefaults[] = {
      {v1::DATA_TYPE_F16, DType::kF16},      {v1::DATA_TYPE_BF16, DType::kBF16},
      {v1::DATA_TYPE_F32, DType::kF32},      {v1::DATA_TYPE_F64, DType::kF64},
      {v1::DATA_TYPE_F8_E4M3, DType::kBF16}, {v1::DATA_TYPE_F8_E5M2, DType::kBF16},
      {v1::DATA_TYPE_I8, DType::kI32}};
  for (const auto& [type_a, type_d] : kDefaults) {
    v1::GemmRequest request;
    request.mutable_problem()->set_type_a(type_a);  // m = n = k = 0: no operands needed
    EXPECT_EQ(DecodeOk(request).problem.type_d, type_d) << v1::DataType_Name(type_a);
  }
}

TEST(CodecTest, ZeroBatchStrideBroadcastsAndAbsentIsPacked) {
  v1::GemmRequest request = Valid();
  request.mutable_problem()->set_batch(2);
  request.mutable_a()->set_inline_(std::string(2 * 48, 'a'));
  request.mutable_b()->set_batch_stride(0);
  const GemmProblem problem = DecodeOk(request).problem;
  EXPECT_EQ(problem.a.batch_stride, 12);
  EXPECT_EQ(problem.b.batch_stride, 0);
}

TEST(CodecTest, TransposedOperandsAreStoredTheOtherWayRound) {
  v1::GemmRequest request = Valid();
  request.mutable_problem()->set_trans_a(v1::TRANSPOSE_TRANS);
  request.mutable_a()->set_ld(6);
  request.mutable_a()->set_inline_(std::string((3 * 6 + 3) * 4, 'a'));
  const GemmProblem problem = DecodeOk(request).problem;
  EXPECT_EQ(problem.a, (MatrixLayout{.rows = 4, .cols = 3, .ld = 6, .batch_stride = 24}));
}

TEST(CodecTest, OperandsThatAreNotReadMayBeAbsent) {
  v1::GemmRequest no_product = Valid();
  no_product.mutable_problem()->set_alpha(0);
  no_product.clear_a();
  no_product.clear_b();
  EXPECT_EQ(DecodeOk(no_product).operands.a, nullptr);

  v1::GemmRequest no_k = Valid();
  no_k.mutable_problem()->set_k(0);
  no_k.mutable_a()->set_inline_("");
  no_k.clear_b();
  DecodeOk(no_k);

  v1::GemmRequest no_rows = Valid();
  no_rows.mutable_problem()->set_m(0);
  no_rows.mutable_problem()->set_beta(1);
  no_rows.clear_a();
  no_rows.clear_b();
  EXPECT_EQ(DecodeOk(no_rows).bytes, 0);
}

TEST(CodecTest, UnbuiltTypesAreLeftToTheEngine) {
  v1::GemmRequest request = Valid();
  request.mutable_problem()->set_type_a(v1::DATA_TYPE_F8_E4M3);
  request.mutable_a()->set_inline_(std::string(12, 'a'));
  request.mutable_b()->set_inline_(std::string(20, 'b'));
  EXPECT_EQ(DecodeOk(request).problem.type_a, DType::kF8E4M3);
}

TEST(CodecTest, PlanOptionsBecomeConstraints) {
  v1::GemmRequest request = Valid();
  EXPECT_FALSE(DecodeOk(request).constraints.any());
  request.mutable_plan()->set_kernel("openblas");
  request.mutable_plan()->set_stages(3);
  request.mutable_plan()->set_split_k(2);
  const PlanConstraints constraints = DecodeOk(request).constraints;
  EXPECT_EQ(constraints.row, RowByName("openblas"));
  EXPECT_EQ(constraints.stages, 3);
  EXPECT_EQ(constraints.split_k, 2);
}

struct BadRequest {
  const char* name;
  std::function<void(v1::GemmRequest*)> spoil;
  StatusCode code;
  const char* field;
  const char* value;  // both are part of the message
  const char* limit;
};

void PrintTo(const BadRequest& bad, std::ostream* out) { *out << bad.name; }

class BadRequestTest : public ::testing::TestWithParam<BadRequest> {};

TEST_P(BadRequestTest, IsRefusedWithFieldValueAndLimit) {
  const BadRequest& bad = GetParam();
  v1::GemmRequest request = Valid();
  bad.spoil(&request);
  const StatusOr<DecodedGemm> decoded = DecodeGemm(request, kMaxResult);
  ASSERT_FALSE(decoded.ok());
  const Status& status = decoded.status();
  EXPECT_EQ(status.code(), bad.code) << status.ToString();
  EXPECT_EQ(status.field(), bad.field) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(bad.field));
  EXPECT_THAT(status.message(), HasSubstr(bad.value));
  EXPECT_THAT(status.message(), HasSubstr(bad.limit));
}

// A problem field set to a value.
template <typename T>
auto With(void (v1::Problem::*set)(T), std::type_identity_t<T> value) {
  return [set, value](v1::GemmRequest* r) { (r->mutable_problem()->*set)(value); };
}

constexpr auto kInvalid = StatusCode::kInvalidArgument;
constexpr auto kUnbuilt = StatusCode::kUnimplemented;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

void UnknownField(google::protobuf::Message* message) {
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(77, 1);
}

void Huge(v1::GemmRequest* r) {
  for (auto set : {&v1::Problem::set_m, &v1::Problem::set_n, &v1::Problem::set_k}) {
    (r->mutable_problem()->*set)(kMaxExtent);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Extents, BadRequestTest,
    ::testing::Values(BadRequest{"no problem", [](auto* r) { r->clear_problem(); }, kInvalid,
                                 "problem", "missing", "m, n, k"},
                      BadRequest{"m negative", With(&v1::Problem::set_m, -1), kInvalid, "problem.m",
                                 "-1", "below 0"},
                      BadRequest{"n too large", With(&v1::Problem::set_n, int64_t{1} << 32),
                                 kInvalid, "problem.n", "4294967296", "2147483647"},
                      BadRequest{"k smallest",
                                 With(&v1::Problem::set_k, std::numeric_limits<int64_t>::min()),
                                 kInvalid, "problem.k", "-9223372036854775808", "below 0"},
                      BadRequest{"batch negative", With(&v1::Problem::set_batch, -3), kInvalid,
                                 "problem.batch", "-3", "below 0"},
                      BadRequest{"m*n*k overflows", Huge, kInvalid, "problem.m",
                                 "2147483647*2147483647*2147483647", "2^63-1"},
                      BadRequest{"result above a message",
                                 [](auto* r) {
                                   r->mutable_problem()->set_m(1000);
                                   r->mutable_problem()->set_n(1000);
                                   r->mutable_problem()->set_k(0);
                                 },
                                 StatusCode::kOutOfRange, "d", "4000000", "1048576"},
                      BadRequest{"i8 k overflows i32",
                                 [](auto* r) {
                                   r->mutable_problem()->set_type_a(v1::DATA_TYPE_I8);
                                   r->mutable_problem()->set_k(131072);
                                 },
                                 kInvalid, "problem.k", "131072", "131071"}));

INSTANTIATE_TEST_SUITE_P(
    Scalars, BadRequestTest,
    ::testing::Values(BadRequest{"alpha NaN", With(&v1::Problem::set_alpha, kNan), kInvalid,
                                 "problem.alpha", "nan", "finite"},
                      BadRequest{"beta infinite", With(&v1::Problem::set_beta, -kInf), kInvalid,
                                 "problem.beta", "-inf", "finite"},
                      BadRequest{"alpha beyond fp32", With(&v1::Problem::set_alpha, 1e39), kInvalid,
                                 "problem.alpha", "problem.alpha=1e+39 ", "3.4028234663852886e+38"},
                      BadRequest{"i8 alpha",
                                 [](auto* r) {
                                   r->mutable_problem()->set_type_a(v1::DATA_TYPE_I8);
                                   r->mutable_problem()->set_alpha(2);
                                 },
                                 kInvalid, "problem.alpha", "2", "1 only"}));

INSTANTIATE_TEST_SUITE_P(
    Enums, BadRequestTest,
    ::testing::Values(
        BadRequest{"type_a missing", With(&v1::Problem::set_type_a, v1::DATA_TYPE_UNSPECIFIED),
                   kInvalid, "problem.type_a", "missing", "DataType"},
        BadRequest{"type_a unknown", With(&v1::Problem::set_type_a, v1::DataType(99)), kInvalid,
                   "problem.type_a", "99", "DataType"},
        BadRequest{"type_b unknown", With(&v1::Problem::set_type_b, v1::DataType(-1)), kInvalid,
                   "problem.type_b", "-1", "DataType"},
        BadRequest{"type_d unknown", With(&v1::Problem::set_type_d, v1::DataType(9)), kInvalid,
                   "problem.type_d", "9", "DataType"},
        BadRequest{"types do not mix", With(&v1::Problem::set_type_b, v1::DATA_TYPE_F16), kInvalid,
                   "problem.type_b", "f16", "f32"},
        BadRequest{"result type", With(&v1::Problem::set_type_d, v1::DATA_TYPE_F16), kInvalid,
                   "problem.type_d", "f16", "f32"},
        BadRequest{"operand i32", With(&v1::Problem::set_type_a, v1::DATA_TYPE_I32), kInvalid,
                   "problem.type_a", "i32", "results of i8"},
        BadRequest{"trans_a unknown", With(&v1::Problem::set_trans_a, v1::Transpose(2)), kInvalid,
                   "problem.trans_a", "2", "Transpose"},
        BadRequest{"trans_b unknown", With(&v1::Problem::set_trans_b, v1::Transpose(-7)), kInvalid,
                   "problem.trans_b", "-7", "Transpose"},
        BadRequest{"mode unknown", With(&v1::Problem::set_compute_mode, v1::ComputeMode(8)),
                   kInvalid, "problem.compute_mode", "8", "ComputeMode"},
        BadRequest{"mode of another type",
                   [](auto* r) {
                     r->mutable_problem()->set_type_a(v1::DATA_TYPE_F64);
                     r->mutable_problem()->set_compute_mode(v1::COMPUTE_MODE_TF32);
                   },
                   kInvalid, "problem.compute_mode", "tf32", "f32"},
        BadRequest{"activation unknown", With(&v1::Problem::set_activation, v1::Activation(4)),
                   kInvalid, "problem.activation", "4", "Activation"},
        BadRequest{"bias axis unknown", With(&v1::Problem::set_bias_axis, v1::BiasAxis(2)),
                   kInvalid, "problem.bias_axis", "2", "BiasAxis"}));

INSTANTIATE_TEST_SUITE_P(
    Operands, BadRequestTest,
    ::testing::Values(
        BadRequest{"a one byte short",
                   [](auto* r) { r->mutable_a()->set_inline_(std::string(47, 'a')); }, kInvalid,
                   "a", "47", "expected 48 = ((3-1)*4 + 4)*4"},
        BadRequest{"b one byte long",
                   [](auto* r) { r->mutable_b()->set_inline_(std::string(81, 'b')); }, kInvalid,
                   "b", "81", "expected 80"},
        BadRequest{"a empty", [](auto* r) { r->mutable_a()->set_inline_(""); }, kInvalid, "a",
                   "0 bytes", "expected 48"},
        BadRequest{"a missing", [](auto* r) { r->clear_a(); }, kInvalid, "a", "missing",
                   "expected 48"},
        BadRequest{"b without a source",
                   [](auto* r) {
                     r->clear_b();
                     r->mutable_b()->set_ld(5);
                   },
                   kInvalid, "b", "missing", "expected 80"},
        BadRequest{"c missing", With(&v1::Problem::set_beta, 0.5), kInvalid, "c", "missing",
                   "expected 60"},
        BadRequest{"c short though unread",
                   [](auto* r) { r->mutable_c()->set_inline_(std::string(59, 'c')); }, kInvalid,
                   "c", "59", "expected 60"},
        BadRequest{"a given for k = 0",
                   [](auto* r) {
                     r->mutable_problem()->set_k(0);
                     r->mutable_b()->set_inline_("");
                   },
                   kInvalid, "a", "48", "expected 0"},
        BadRequest{"ld too short", [](auto* r) { r->mutable_a()->set_ld(3); }, kInvalid, "a.ld",
                   "3", "row length 4"},
        BadRequest{"ld negative", [](auto* r) { r->mutable_b()->set_ld(-5); }, kInvalid, "b.ld",
                   "-5", "row length 5"},
        BadRequest{"ld overflows",
                   [](auto* r) { r->mutable_a()->set_ld(std::numeric_limits<int64_t>::max()); },
                   kInvalid, "a.ld", "9223372036854775807", "2^63-1"},
        BadRequest{"d too large without a c",
                   [](auto* r) {
                     r->mutable_problem()->set_m(kMaxExtent);
                     r->mutable_problem()->set_n(kMaxExtent);
                     r->mutable_problem()->set_k(0);
                   },
                   kInvalid, "problem.m", "2147483647", "2^63-1"},
        BadRequest{"ld of c too short", [](auto* r) { r->mutable_c()->set_ld(4); }, kInvalid,
                   "c.ld", "4", "row length 5"},
        BadRequest{"stride negative", [](auto* r) { r->mutable_a()->set_batch_stride(-12); },
                   kInvalid, "a.batch_stride", "-12", "below 0"},
        BadRequest{"stride overflows",
                   [](auto* r) {
                     r->mutable_problem()->set_batch(3);
                     r->mutable_b()->set_batch_stride(int64_t{1} << 62);
                   },
                   kInvalid, "b.batch_stride", "4611686018427387904", "2^63-1"},
        BadRequest{"batch not in the bytes", With(&v1::Problem::set_batch, 2), kInvalid, "a", "48",
                   "expected 96 = ((3-1)*4 + 4 + (2-1)*12)*4"},
        BadRequest{"bias off by one element",
                   [](auto* r) { r->mutable_bias()->set_inline_(std::string(16, 'x')); }, kInvalid,
                   "bias", "16", "expected 20 = 5*4"},
        BadRequest{"bias per row has m elements",
                   [](auto* r) {
                     r->mutable_problem()->set_bias_axis(v1::BIAS_AXIS_PER_ROW);
                     r->mutable_bias()->set_inline_(std::string(20, 'x'));
                   },
                   kInvalid, "bias", "20", "expected 12 = 3*4"},
        BadRequest{"bias without a source", [](auto* r) { r->mutable_bias(); }, kInvalid, "bias",
                   "missing", "expected 20"},
        BadRequest{"bias stride", [](auto* r) { r->mutable_bias()->set_batch_stride(5); }, kInvalid,
                   "bias.batch_stride", "5", "limit is 0"},
        BadRequest{"bias for i8",
                   [](auto* r) {
                     r->mutable_problem()->set_type_a(v1::DATA_TYPE_I8);
                     r->mutable_bias()->set_inline_(std::string(20, 'x'));
                   },
                   kInvalid, "bias", "bias", "i8"},
        BadRequest{"operand that v1 does not have", [](auto* r) { UnknownField(r); }, kInvalid,
                   "request", "77", "v1"},
        BadRequest{"unknown field of a", [](auto* r) { UnknownField(r->mutable_a()); }, kInvalid,
                   "a", "77", "v1"},
        BadRequest{"unknown field of problem", [](auto* r) { UnknownField(r->mutable_problem()); },
                   kInvalid, "problem", "77", "v1"}));

INSTANTIATE_TEST_SUITE_P(
    NotBuilt, BadRequestTest,
    ::testing::Values(
        BadRequest{"tensor", [](auto* r) { r->mutable_a()->set_tensor("h"); }, kUnbuilt, "a.tensor",
                   "tensors", "a.inline"},
        BadRequest{"shared memory", [](auto* r) { r->mutable_b()->mutable_shared_memory(); },
                   kUnbuilt, "b.shared_memory", "shared memory", "b.inline"},
        BadRequest{"streamed", [](auto* r) { r->mutable_c()->set_streamed(true); }, kUnbuilt,
                   "c.streamed", "GemmStream", "c.inline"},
        BadRequest{"bias as a tensor", [](auto* r) { r->mutable_bias()->set_tensor("h"); },
                   kUnbuilt, "bias.tensor", "tensors", "bias.inline"},
        BadRequest{"result as a tensor", [](auto* r) { r->mutable_output()->set_new_tensor(true); },
                   kUnbuilt, "output.new_tensor", "tensors", "unset"},
        BadRequest{"result to shared memory",
                   [](auto* r) { r->mutable_output()->mutable_shared_memory(); }, kUnbuilt,
                   "output.shared_memory", "shared memory", "unset"}));

INSTANTIATE_TEST_SUITE_P(
    Options, BadRequestTest,
    ::testing::Values(
        BadRequest{"kernel unknown", [](auto* r) { r->mutable_plan()->set_kernel("fast\n"); },
                   kInvalid, "plan.kernel", "\"fast?\"", "ListKernels"},
        BadRequest{"stages negative", [](auto* r) { r->mutable_plan()->set_stages(-1); }, kInvalid,
                   "plan.stages", "-1", "below 0"},
        BadRequest{"split_k negative", [](auto* r) { r->mutable_plan()->set_split_k(-2); },
                   kInvalid, "plan.split_k", "-2", "below 0"},
        BadRequest{"request id too long", [](auto* r) { r->set_request_id(std::string(65, 'x')); },
                   kInvalid, "request_id", "65", "64"},
        BadRequest{"request id with a newline", [](auto* r) { r->set_request_id("a\nb"); },
                   kInvalid, "request_id", "a?b", "[A-Za-z0-9._-]"}));

TEST(CodecTest, RequestIdAtItsLimitIsKept) {
  v1::GemmRequest request = Valid();
  request.set_request_id(std::string(62, 'x') + "_9");
  EXPECT_EQ(DecodeOk(request).request_id, request.request_id());
}

TEST(CodecTest, ResultAtTheLimitIsAccepted) {
  EXPECT_TRUE(DecodeGemm(Valid(), 60).ok());
  EXPECT_EQ(DecodeGemm(Valid(), 59).status().code(), StatusCode::kOutOfRange);
}

TEST(CodecTest, ExplainTakesLeadingDimensionsAndRefusesBadOnes) {
  v1::ExplainPlanRequest request;
  *request.mutable_problem() = Valid().problem();
  request.set_lda(7);
  const StatusOr<DecodedExplain> decoded = DecodeExplain(request);
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->problem.a.ld, 7);
  EXPECT_EQ(decoded->max_candidates, 16);
  request.set_lda(3);
  EXPECT_EQ(DecodeExplain(request).status().field(), "lda");
  request.set_lda(0);
  request.set_ldb(-1);
  EXPECT_EQ(DecodeExplain(request).status().field(), "ldb");
  request.set_ldb(0);
  request.set_ldc(4);
  EXPECT_EQ(DecodeExplain(request).status().message(), "ldc=4 is below its row length 5");
  request.set_ldc(int64_t{1} << 61);
  request.mutable_problem()->set_batch(3);
  EXPECT_EQ(DecodeExplain(request).status().field(), "ldc");
  request.set_ldc(0);
  request.mutable_problem()->set_batch(1);
  request.set_max_candidates(-1);
  EXPECT_EQ(DecodeExplain(request).status().field(), "max_candidates");
}

TEST(CodecTest, ExecutionCarriesPlanAndPhases) {
  GemmResult result;
  result.plan = {.row = 0,
                 .stages = 4,
                 .pair = true,
                 .limit = StageLimit::kResidency,
                 .source = PlanSource::kForced,
                 .smem_bytes = 99,
                 .registers_per_thread = 168,
                 .waves = 1.25,
                 .predicted_seconds = 1.5e-6};
  result.backend = "cuda";
  result.device = 1;
  result.lane = 2;
  result.times.kernel = std::chrono::milliseconds(1500);
  GemmProblem problem;
  problem.m = 2;
  problem.n = 3;
  problem.k = 4;
  v1::Execution out = EncodeExecution("id", problem, result);
  EXPECT_EQ(out.request_id(), "id");
  EXPECT_EQ(out.plan().kernel(), kKernelTable[0].name);
  EXPECT_EQ(out.plan().stages(), 4);
  EXPECT_EQ(out.plan().limit(), v1::STAGE_LIMIT_RESIDENCY);
  EXPECT_EQ(out.plan().source(), v1::PLAN_SOURCE_FORCED);
  EXPECT_EQ(out.plan().predicted().nanos(), 1500);
  EXPECT_FALSE(out.plan().has_measured());
  EXPECT_TRUE(out.plan().pair());
  EXPECT_EQ(out.plan().registers(), 168);
  EXPECT_EQ(out.plan().waves(), 1.25);
  EXPECT_EQ(out.phases().kernel().seconds(), 1);
  EXPECT_EQ(out.phases().kernel().nanos(), 500'000'000);
  EXPECT_FALSE(out.has_stalls());
  EXPECT_EQ(out.flops(), 48);
  result.plan.measured_seconds = 2.5e-6;
  result.stalls = {.measured = true, .wait_full = 5, .k_tiles = 6};
  out = EncodeExecution("id", problem, result);
  EXPECT_EQ(out.plan().measured().nanos(), 2500);
  EXPECT_EQ(out.stalls().wait_full(), 5U);
  EXPECT_EQ(out.stalls().k_tiles(), 6U);
}

TEST(DecodeExplainTest, RefusalsNameItsOwnFields) {
  v1::ExplainPlanRequest request;
  request.mutable_problem()->set_m(3);
  request.mutable_problem()->set_n(5);
  request.mutable_problem()->set_k(4);
  request.mutable_problem()->set_type_a(v1::DATA_TYPE_F32);
  ASSERT_TRUE(DecodeExplain(request).ok());
  const auto field = [](const v1::ExplainPlanRequest& refused) {
    const Status status = DecodeExplain(refused).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    if (status.field().starts_with("ld")) {
      EXPECT_TRUE(status.message().starts_with(status.field() + "=")) << status.ToString();
    }
    return status.field();
  };
  v1::ExplainPlanRequest bad = request;
  bad.set_lda(3);
  EXPECT_EQ(field(bad), "lda");
  bad = request;
  bad.set_ldb(4);
  EXPECT_EQ(field(bad), "ldb");
  bad = request;
  bad.set_ldc(4);
  EXPECT_EQ(field(bad), "ldc");
  bad = request;
  bad.set_ldb(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(field(bad), "ldb");
  bad = request;
  bad.set_lda(int64_t{1} << 58);
  bad.mutable_problem()->set_batch(1 << 20);
  EXPECT_EQ(field(bad), "problem.batch");
}

}  // namespace
}  // namespace gemmd
