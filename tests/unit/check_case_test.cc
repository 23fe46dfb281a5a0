#include "client/check_case.h"

#include <cmath>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "kernels/core/numeric.h"
#include "kernels/core/reference_gemm.h"

namespace gemmd {
namespace {

const std::vector<ClientTypes> kTypes = {
    {DType::kF32, DType::kF32, DType::kF32, ComputeMode::kIeee, DType::kF32},
    {DType::kBF16, DType::kBF16, DType::kF32, ComputeMode::kIeee, DType::kF32},
    {DType::kF8E4M3, DType::kF8E5M2, DType::kF16, ComputeMode::kIeee, DType::kF32},
    {DType::kI8, DType::kI8, DType::kI32, ComputeMode::kIeee, DType::kI32},
};

TEST(CheckCaseTest, TheSameSeedAndIndexMakeTheSameCase) {
  for (uint64_t index = 0; index < 20; ++index) {
    const CheckCase one = MakeCheckCase(7, index, 64, kTypes);
    const CheckCase two = MakeCheckCase(7, index, 64, kTypes);
    EXPECT_EQ(ToString(one.problem), ToString(two.problem));
    EXPECT_EQ(one.a, two.a);
    EXPECT_EQ(one.d, two.d);
  }
  EXPECT_NE(MakeCheckCase(7, 1, 64, kTypes).a, MakeCheckCase(8, 1, 64, kTypes).a);
}

TEST(CheckCaseTest, EveryCaseIsAValidProblemOfBoundedWork) {
  for (uint64_t index = 0; index < 300; ++index) {
    const CheckCase made = MakeCheckCase(11, index, 4096, kTypes);
    const Status valid = ValidateProblem(made.problem);
    EXPECT_TRUE(valid.ok()) << index << ": " << valid.ToString();
    EXPECT_LE(made.problem.flops(), 2.0 * (1 << 22)) << ToString(made.problem);
    EXPECT_TRUE(made.GuardIntact());
  }
}

TEST(CheckCaseTest, TheCasesCoverWhatKernelsGetWrong) {
  std::set<std::string> seen;
  for (uint64_t index = 0; index < 600; ++index) {
    const GemmProblem p = MakeCheckCase(3, index, 300, kTypes).problem;
    const auto note = [&](bool yes, const char* what) {
      if (yes) seen.insert(what);
    };
    note(p.m == 0 || p.n == 0, "empty");
    note(p.k == 0, "no product");
    note(p.batch == 0, "no batch");
    note(p.batch > 1 && p.b.batch_stride == 0, "broadcast");
    note(p.batch > 1 && p.a.batch_stride > p.a.rows * p.a.ld, "gaps");
    note(p.a.ld > p.a.cols, "padded rows");
    note(p.op_a == Op::kT && p.op_b == Op::kT, "TT");
    note(p.op_a == Op::kN && p.op_b == Op::kN, "NN");
    note(p.alpha == 0, "alpha 0");
    note(p.beta == 0 && p.type_a != DType::kI8, "beta 0");
    note(p.reads_c(), "C");
    note(p.bias == BiasAxis::kPerRow, "bias per row");
    note(p.bias == BiasAxis::kPerColumn, "bias per column");
    note(p.act == Activation::kGelu, "gelu");
    note(p.m == 129 || p.n == 127, "tile edge");
  }
  EXPECT_EQ(seen.size(), 15U);
}

TEST(CheckCaseTest, WhatMustNotBeReadIsNaN) {
  for (uint64_t index = 0; index < 200; ++index) {
    const CheckCase made = MakeCheckCase(5, index, 40, kTypes);
    const GemmProblem& p = made.problem;
    if (p.type_a == DType::kI8) continue;
    if (p.beta == 0 && !made.c.empty()) {
      EXPECT_TRUE(std::isnan(LoadElement(made.c.data(), p.type_d, 0)));
    }
    if (p.a.ld > p.a.cols && p.a.rows > 1 && p.a.cols > 0 && p.batch > 0) {
      EXPECT_TRUE(std::isnan(LoadElement(made.a.data(), p.type_a, p.a.cols)));
    }
  }
}

// A result computed apart from the reference passes; one wrong element, or one left poisoned,
// fails.
TEST(CheckCaseTest, OneWrongElementIsFound) {
  int tried = 0;
  for (uint64_t index = 0; index < 100; ++index) {
    CheckCase made = MakeCheckCase(9, index, 20, kTypes);
    const GemmProblem& p = made.problem;
    if (p.empty()) continue;
    ++tried;
    const std::vector<double> reference = ReferenceGemm(p, made.Operands());
    const std::vector<std::byte> poisoned = made.d;
    for (size_t i = 0; i < reference.size(); ++i) {
      StoreElement(made.d.data(), p.type_d, static_cast<int64_t>(i), reference[i]);
    }
    EXPECT_TRUE(CompareWithReference(p, made.Operands()).ok) << ToString(p);
    const auto last = static_cast<int64_t>(reference.size()) - 1;
    StoreElement(made.d.data(), p.type_d, last, reference.back() + 100);
    const Mismatch mismatch = CompareWithReference(p, made.Operands());
    EXPECT_FALSE(mismatch.ok) << ToString(p);
    EXPECT_EQ(mismatch.first_wrong, last);
    made.d = poisoned;
    EXPECT_FALSE(CompareWithReference(p, made.Operands()).ok) << ToString(p);
  }
  EXPECT_GT(tried, 50);
}

}  // namespace
}  // namespace gemmd
