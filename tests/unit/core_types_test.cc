#include <chrono>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "kernels/core/checked.h"
#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"

namespace gemmd {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(CheckedTest, SaysWhenAResultDoesNotFit) {
  EXPECT_EQ(CheckedMul(3, 4), 12);
  EXPECT_EQ(CheckedAdd(-3, 4), 1);
  EXPECT_EQ(CheckedMul(kMax, 1), kMax);
  EXPECT_FALSE(CheckedMul(int64_t{1} << 32, int64_t{1} << 31));
  EXPECT_FALSE(CheckedAdd(kMax, 1));
  EXPECT_FALSE(CheckedAdd(std::numeric_limits<int64_t>::min(), -1));
}

TEST(CheckedTest, AnOverflowStaysOneThroughTheChain) {
  EXPECT_FALSE(CheckedMul(CheckedMul(kMax, 2), 0));
  EXPECT_FALSE(CheckedAdd(1, CheckedAdd(kMax, 1)));
}

TEST(StatusTest, KeepsCodeMessageFieldAndDelay) {
  EXPECT_TRUE(OkStatus().ok());
  EXPECT_EQ(OkStatus().ToString(), "OK");
  const Status bad = InvalidArgument("a.ld", "a.ld=3 is below its row length 4");
  EXPECT_EQ(bad.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bad.field(), "a.ld");
  EXPECT_EQ(bad.ToString(), "INVALID_ARGUMENT: a.ld=3 is below its row length 4");
  EXPECT_FALSE(bad.retry_after());
  const Status later = ResourceExhausted("queue full").WithRetryAfter(std::chrono::milliseconds(5));
  EXPECT_EQ(later.retry_after(), std::chrono::milliseconds(5));
}

TEST(StatusTest, IsWholeAfterFieldAndDelayAreAssignedBackToIt) {
  // Long enough that no string keeps its text in place.
  const std::string message(100, 'm'), field(100, 'f');
  Status status = Unavailable(message);
  status = std::move(status).WithField(field);
  status = std::move(status).WithRetryAfter(std::chrono::milliseconds(5));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), message);
  EXPECT_EQ(status.field(), field);
  EXPECT_EQ(status.retry_after(), std::chrono::milliseconds(5));
}

StatusOr<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("value", "value is odd");
  return value / 2;
}

Status Quarter(int value, int& result) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  ASSIGN_OR_RETURN(result, Half(half));
  return OkStatus();
}

TEST(StatusTest, MacrosStopAtTheFirstError) {
  int result = 0;
  EXPECT_TRUE(Quarter(8, result).ok());
  EXPECT_EQ(result, 2);
  EXPECT_EQ(Quarter(6, result).field(), "value");
  EXPECT_EQ(result, 2);
}

GemmProblem Valid(DType type = DType::kF32) {
  GemmProblem p;
  p.m = 3;
  p.n = 4;
  p.k = 5;
  p.type_a = p.type_b = p.type_d = type;
  if (type == DType::kI8) p.type_d = DType::kI32;
  return WithPackedLayouts(p);
}

// The refusal names `field` both apart and in its message.
void ExpectRefused(const GemmProblem& p, const std::string& field, const std::string& in_message) {
  const Status status = ValidateProblem(p);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  EXPECT_EQ(status.field(), field) << status.ToString();
  EXPECT_NE(status.message().find(in_message), std::string::npos) << status.ToString();
}

TEST(GemmTypesTest, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DType::kI32); ++i) {
    EXPECT_EQ(DTypeFromName(Name(static_cast<DType>(i))), static_cast<DType>(i));
  }
  for (int i = 0; i <= static_cast<int>(Activation::kSilu); ++i) {
    EXPECT_EQ(ActivationFromName(Name(static_cast<Activation>(i))), static_cast<Activation>(i));
  }
  EXPECT_FALSE(DTypeFromName("f15"));
  EXPECT_FALSE(ActivationFromName(""));
}

TEST(GemmTypesTest, AcceptsValidAndEmptyProblems) {
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI8}) {
    EXPECT_TRUE(ValidateProblem(Valid(type)).ok()) << Name(type);
  }
  for (int64_t GemmProblem::*extent :
       {&GemmProblem::m, &GemmProblem::n, &GemmProblem::k, &GemmProblem::batch}) {
    GemmProblem p = Valid();
    p.*extent = 0;
    EXPECT_TRUE(ValidateProblem(WithPackedLayouts(p)).ok());
  }
}

TEST(GemmTypesTest, RefusesExtentsOutOfRange) {
  GemmProblem p = Valid();
  p.m = -1;
  ExpectRefused(p, "problem.m", "-1");
  p = Valid();
  p.k = kMaxExtent + 1;
  ExpectRefused(p, "problem.k", "2147483647");
  p = Valid();
  p.batch = -5;
  ExpectRefused(p, "problem.batch", "-5");
}

TEST(GemmTypesTest, RefusesWhatOverflows64Bits) {
  GemmProblem p = Valid();
  p.m = p.n = p.k = kMaxExtent;
  ExpectRefused(WithPackedLayouts(p), "problem.m", "2^63-1");
  p = Valid();
  p.a.ld = kMax / 2;
  ExpectRefused(p, "a.ld", "exceeds the limit");
  p = Valid();
  p.batch = 3;
  p.b.batch_stride = kMax / 2;
  ExpectRefused(p, "b.batch_stride", "exceeds the limit");
}

// A caller that gives no strides must not hear of one.
TEST(GemmTypesTest, BlamesExtentsWhereNoStrideWasSet) {
  GemmProblem p;
  p.m = p.n = kMaxExtent;  // k = 0: the product is small
  ExpectRefused(WithPackedLayouts(p), "problem.m",
                "problem.m=2147483647 rows of n=2147483647 values of 4 bytes exceed the limit");
  p = {};
  p.m = p.k = kMaxExtent;
  p.op_a = Op::kT;
  ExpectRefused(WithPackedLayouts(p), "problem.k", "problem.k=2147483647 rows of m=2147483647");
  p = {};
  p.n = p.k = kMaxExtent;
  ExpectRefused(WithPackedLayouts(p), "problem.k", "problem.k=2147483647 rows of n=2147483647");
  p = {};
  p.m = p.batch = kMaxExtent;
  p.n = 2;
  ExpectRefused(WithPackedLayouts(p), "problem.batch",
                "problem.batch=2147483647 matrices of m=2147483647 rows of n=2 values of 4 bytes");
  p = WithPackedLayouts(p);
  p.c.batch_stride = 0;  // one C for all: D is what does not fit
  ExpectRefused(p, "problem.batch", "problem.batch=2147483647 matrices of m=2147483647 rows");
}

TEST(GemmTypesTest, BlamesTheBatchThatRepeatsAPadding) {
  GemmProblem p = Valid();
  p.batch = 8;
  p = WithPackedLayouts(p);
  p.c.ld = int64_t{1} << 58;
  p.c.batch_stride = p.c.rows * p.c.ld;
  ExpectRefused(p, "problem.batch",
                "problem.batch=8 matrices of m=3 rows of ld=288230376151711744 values of 4 bytes");
}

TEST(GemmTypesTest, RefusesBadLayouts) {
  GemmProblem p = Valid();
  p.a.ld = 4;
  ExpectRefused(p, "a.ld", "row length 5");
  p = Valid();
  p.b.ld = 0;
  ExpectRefused(p, "b.ld", "row length 4");
  p = Valid();
  p.c.batch_stride = -1;
  ExpectRefused(p, "c.batch_stride", "-1");
}

TEST(GemmTypesTest, RefusesScalarsThatAreNotFiniteInTheAccumulator) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), 1e39}) {
    GemmProblem p = Valid();
    p.alpha = bad;
    ExpectRefused(p, "problem.alpha", "alpha=");
    p = Valid();
    p.beta = bad;
    ExpectRefused(p, "problem.beta", "beta=");
  }
  GemmProblem p = Valid(DType::kF64);
  p.alpha = 1e39;
  EXPECT_TRUE(ValidateProblem(p).ok());
}

TEST(GemmTypesTest, ScalarsBelowTheAccumulatorsRangeAreZero) {
  for (const double tiny : {1e-50, -1e-50, 0x1p-150}) {
    GemmProblem p = Valid();
    p.alpha = p.beta = tiny;
    EXPECT_FALSE(p.reads_ab()) << tiny;
    EXPECT_FALSE(p.reads_c()) << tiny;
    p.type_a = p.type_b = p.type_d = DType::kF64;
    EXPECT_TRUE(p.reads_ab()) << tiny;
    EXPECT_TRUE(p.reads_c()) << tiny;
  }
  GemmProblem p = Valid();
  p.alpha = p.beta = 0x1.000001p-150;  // rounds to fp32's smallest
  EXPECT_NE(static_cast<float>(p.beta), 0.0F);
  EXPECT_TRUE(p.reads_ab());
  EXPECT_TRUE(p.reads_c());
}

TEST(GemmTypesTest, RefusalsGiveFieldAndValueInOneWord) {
  GemmProblem p = Valid(DType::kI8);
  p.k = kMaxInt8K + 1;
  ExpectRefused(WithPackedLayouts(p), "problem.k", "problem.k=131072 exceeds");
  p = Valid(DType::kI8);
  p.alpha = 2;
  ExpectRefused(p, "problem.alpha", "problem.alpha=2; i8");
  p = Valid();
  p.alpha = 1e300;
  ExpectRefused(p, "problem.alpha", "problem.alpha=1e+300 is beyond");
  p = Valid();
  p.batch = 2;
  p.a.batch_stride = std::numeric_limits<int64_t>::max();
  ExpectRefused(p, "a.batch_stride", "a.batch_stride=9223372036854775807 over problem.batch=2");
}

TEST(GemmTypesTest, RefusesTypesThatDoNotGoTogether) {
  GemmProblem p = Valid();
  p.type_b = DType::kF16;
  ExpectRefused(p, "problem.type_b", "f16");
  p = Valid();
  p.type_d = DType::kF64;
  ExpectRefused(p, "problem.type_d", "f64");
  p = Valid();
  p.type_a = p.type_b = DType::kI32;
  ExpectRefused(p, "problem.type_a", "i32");
  p = Valid(DType::kF16);
  p.mode = ComputeMode::kTf32;
  ExpectRefused(p, "problem.compute_mode", "tf32");
}

TEST(GemmTypesTest, RefusesInt8PastItsExactRangeOrWithAnEpilogue) {
  GemmProblem p = Valid(DType::kI8);
  p.k = kMaxInt8K;
  EXPECT_TRUE(ValidateProblem(WithPackedLayouts(p)).ok());
  p.k = kMaxInt8K + 1;
  ExpectRefused(WithPackedLayouts(p), "problem.k", "131071");
  p = Valid(DType::kI8);
  p.alpha = 2;
  ExpectRefused(p, "problem.alpha", "1 only");
  p = Valid(DType::kI8);
  p.act = Activation::kGelu;
  ExpectRefused(p, "problem.activation", "gelu");
}

TEST(GemmTypesTest, CountsBytesToTheLastElement) {
  const MatrixLayout layout = {.rows = 3, .cols = 5, .ld = 8, .batch_stride = 100};
  EXPECT_EQ(*StorageBytes(layout, 1, DType::kF32, "a"), (2 * 8 + 5) * 4);
  EXPECT_EQ(*StorageBytes(layout, 4, DType::kF16, "a"), (300 + 2 * 8 + 5) * 2);
  EXPECT_EQ(*StorageBytes({.rows = 0, .cols = 5, .ld = 5}, 4, DType::kF16, "a"), 0);
  GemmProblem p = Valid();
  p.batch = 7;
  EXPECT_EQ(*ResultBytes(p), 7 * 3 * 4 * 4);
}

}  // namespace
}  // namespace gemmd
