// The messages of Tune and Study, decoded and encoded.
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/convert.h"
#include "server/rpc/codec.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

v1::Problem MakeProblem(int64_t m, int64_t n, int64_t k) {
  v1::Problem problem;
  problem.set_m(m);
  problem.set_n(n);
  problem.set_k(k);
  problem.set_type_a(v1::DATA_TYPE_BF16);
  return problem;
}

v1::TuneRequest TuneOf(const v1::Problem& problem) {
  v1::TuneRequest request;
  *request.add_problems() = MakeProblem(1, 2, 3);
  *request.add_problems() = problem;
  return request;
}

TEST(TuneCodecTest, ProblemsArePackedAndInOrder) {
  v1::Problem second = MakeProblem(5, 7, 11);
  second.set_trans_a(v1::TRANSPOSE_TRANS);
  second.set_batch(3);
  second.set_type_d(v1::DATA_TYPE_F32);
  v1::TuneRequest request = TuneOf(second);
  request.set_served(true);
  request.mutable_budget()->set_seconds(2);
  request.mutable_budget()->set_nanos(500'000'000);
  const StatusOr<DecodedTune> decoded = DecodeTune(request);
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  ASSERT_EQ(decoded->problems.size(), 2U);
  EXPECT_EQ(decoded->problems[0].m, 1);
  EXPECT_EQ(decoded->problems[0].batch, 1);
  const GemmProblem& problem = decoded->problems[1];
  EXPECT_EQ(problem.type_d, DType::kF32);
  EXPECT_EQ(problem.a, (MatrixLayout{.rows = 11, .cols = 5, .ld = 5, .batch_stride = 55}));
  EXPECT_EQ(problem.b, (MatrixLayout{.rows = 11, .cols = 7, .ld = 7, .batch_stride = 77}));
  EXPECT_TRUE(decoded->served);
  EXPECT_EQ(decoded->budget, std::chrono::milliseconds(2500));
}

TEST(TuneCodecTest, RefusalsNameTheEntryAndItsField) {
  const auto field = [](const v1::Problem& problem) {
    const Status status = DecodeTune(TuneOf(problem)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("problems[1]"));
    return status.field();
  };
  EXPECT_EQ(field(MakeProblem(-1, 2, 3)), "problems[1].m");
  EXPECT_EQ(field(MakeProblem(1, 2, int64_t{1} << 40)), "problems[1].k");
  EXPECT_EQ(field({}), "problems[1].type_a");
  v1::Problem bad = MakeProblem(1, 2, 3);
  bad.set_activation(static_cast<v1::Activation>(77));
  EXPECT_EQ(field(bad), "problems[1].activation");
  bad = MakeProblem(1, 1, kMaxExtent);  // D is small, and so is one A
  bad.set_type_a(v1::DATA_TYPE_F32);
  bad.set_batch(kMaxExtent);
  EXPECT_EQ(field(bad), "problems[1].batch");
  bad = MakeProblem(kMaxExtent, kMaxExtent, 0);
  bad.set_type_a(v1::DATA_TYPE_F32);
  EXPECT_EQ(field(bad), "problems[1].m");  // not ldc, which it does not have
  bad = MakeProblem(1, 2, 3);
  bad.set_alpha(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(field(bad), "problems[1].alpha");
}

TEST(TuneCodecTest, UnknownFieldsAreRefusedWhereverTheyAre) {
  v1::TuneRequest request = TuneOf(MakeProblem(1, 2, 3));
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(99, 1);
  EXPECT_EQ(DecodeTune(request).status().field(), "request");
  v1::Problem problem = MakeProblem(1, 2, 3);
  problem.GetReflection()->MutableUnknownFields(&problem)->AddVarint(99, 1);
  EXPECT_EQ(DecodeTune(TuneOf(problem)).status().field(), "problems[1]");
}

TEST(TuneCodecTest, BudgetsOfOddSecondsAndNanosNeverOverflow) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t seconds : {kMax, -kMax - 1, int64_t{0}, int64_t{604'801}}) {
    for (const int32_t nanos : {0, std::numeric_limits<int32_t>::min()}) {
      v1::TuneRequest request = TuneOf(MakeProblem(1, 2, 3));
      request.mutable_budget()->set_seconds(seconds);
      request.mutable_budget()->set_nanos(nanos);
      EXPECT_EQ(DecodeTune(request).status().field(), "budget") << seconds << " " << nanos;
    }
  }
}

TEST(StudyCodecTest, KernelBecomesItsRow) {
  v1::StudyRequest request;
  *request.add_problems() = MakeProblem(1, 2, 3);
  request.set_max_stages(5);
  StatusOr<DecodedStudy> decoded = DecodeStudy(request);
  ASSERT_TRUE(decoded.ok());
  EXPECT_FALSE(decoded->row);
  EXPECT_EQ(decoded->max_stages, 5);
  request.set_kernel(std::string(kKernelTable[2].name));
  decoded = DecodeStudy(request);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->row, 2);
}

TEST(TuneCodecTest, ProblemsComeBackAsTheyWere) {
  v1::Problem in = MakeProblem(5, 7, 11);
  in.set_trans_b(v1::TRANSPOSE_TRANS);
  in.set_batch(3);
  in.set_alpha(0.5);
  in.set_beta(2);
  in.set_activation(v1::ACTIVATION_SILU);
  in.set_deterministic(true);
  const GemmProblem problem = DecodeTune(TuneOf(in))->problems[1];
  const GemmProblem again = DecodeTune(TuneOf(ToProto(problem)))->problems[1];
  EXPECT_EQ(ToString(again), ToString(problem));
  EXPECT_EQ(again.alpha, 0.5);
  EXPECT_EQ(again.beta, 2);
  EXPECT_EQ(again.act, Activation::kSilu);
  EXPECT_EQ(again.op_b, Op::kT);
  EXPECT_TRUE(again.deterministic);
}

TEST(TuneCodecTest, StepsSayOnlyWhatIsKnown) {
  TuneStep step;
  step.total = 2;
  v1::TuneProgress first = ToProto(step);
  EXPECT_FALSE(first.has_problem());
  EXPECT_FALSE(first.has_best());
  EXPECT_FALSE(first.has_time_left());
  step.done = 1;
  step.problem = DecodeTune(TuneOf(MakeProblem(1, 2, 3)))->problems[0];
  step.seconds_left = 1.5;
  v1::TuneProgress failed = ToProto(step);
  EXPECT_EQ(failed.problem().n(), 2);
  EXPECT_FALSE(failed.has_best());
  EXPECT_EQ(failed.time_left().nanos(), 500'000'000);
}

TEST(TuneCodecTest, ACalibrationNeedsNoProblemsAndIsSentAsFound) {
  v1::TuneRequest request;
  request.set_calibrate(true);
  const StatusOr<DecodedTune> decoded = DecodeTune(request);
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_TRUE(decoded->calibrate);
  EXPECT_TRUE(decoded->problems.empty());
  TuneStep step;
  step.calibrations = {{.ordinal = 3, .device = "NVIDIA H200", .calibration = kH200Calibration},
                       {.ordinal = 4,
                        .device = "NVIDIA A100",
                        .calibration = {.cp_async = kH200Calibration.cp_async, .tma = {}}}};
  const v1::TuneProgress progress = ToProto(step);
  ASSERT_EQ(progress.calibrations_size(), 2);
  EXPECT_EQ(progress.calibrations(0).ordinal(), 3);
  EXPECT_EQ(progress.calibrations(0).device(), "NVIDIA H200");
  EXPECT_EQ(FromProto(progress.calibrations(0).calibration()), kH200Calibration);
  EXPECT_FALSE(progress.calibrations(1).calibration().has_tma());
}

TEST(StudyCodecTest, SpreadIsBetweenThePercentiles) {
  StudyStep step;
  step.timing = {.median_seconds = 2e-6, .p5_seconds = 1e-6, .p95_seconds = 4e-6, .stalls = {}};
  EXPECT_EQ(ToProto(step).median().nanos(), 2000);
  EXPECT_EQ(ToProto(step).spread().nanos(), 3000);
  EXPECT_FALSE(ToProto(step).has_stalls());
  step.timing.stalls = {.measured = true, .wait_full = 7};
  EXPECT_EQ(ToProto(step).stalls().wait_full(), 7U);
}

}  // namespace
}  // namespace gemmd
