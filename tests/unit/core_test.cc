#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/core/gemm_types.h"
#include "kernels/core/numeric.h"
#include "kernels/core/reference_gemm.h"
#include "tests/support/matrices.h"

namespace gemmd {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A narrow type by its definition, in double: the conversions are checked against this.
struct NarrowType {
  DType type;
  int exponent_bits, mantissa_bits;
  bool has_infinity;
  uint32_t sign_bit;

  uint32_t patterns() const { return 2 * sign_bit; }
  double ValueOf(uint32_t bits) const {
    const uint32_t magnitude = bits & (sign_bit - 1);
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const uint32_t fraction = magnitude & ((1u << mantissa_bits) - 1);
    const int top = (1 << exponent_bits) - 1, bias = top / 2;
    double value = 0;
    if (has_infinity ? exponent == top : magnitude == sign_bit - 1) {
      value = has_infinity && fraction == 0 ? kInf : kNaN;
    } else if (exponent == 0) {
      value = std::ldexp(fraction, 1 - bias - mantissa_bits);
    } else {
      value = std::ldexp((1u << mantissa_bits) + fraction, exponent - bias - mantissa_bits);
    }
    return bits & sign_bit ? -value : value;
  }
};
constexpr NarrowType kNarrowTypes[] = {
    {DType::kF16, 5, 10, true, 0x8000},
    {DType::kBF16, 8, 7, true, 0x8000},
    {DType::kF8E4M3, 4, 3, false, 0x80},
    {DType::kF8E5M2, 5, 2, true, 0x80},
};

uint32_t Narrow(DType type, float value) {
  uint16_t bits = 0;
  std::byte out[4];
  NarrowFromFloat(&value, type, 1, out);
  std::memcpy(&bits, out, static_cast<size_t>(SizeOf(type)));
  return bits;
}

float Widen(DType type, uint32_t bits) {
  const auto narrow = static_cast<uint16_t>(bits);
  std::byte in[4];
  std::memcpy(in, &narrow, sizeof(narrow));
  float value = 0;
  WidenToFloat(in, type, 1, &value);
  return value;
}

TEST(NumericTest, WidensEveryPatternToItsValue) {
  for (const NarrowType& narrow : kNarrowTypes) {
    for (uint32_t bits = 0; bits < narrow.patterns(); ++bits) {
      const double expected = narrow.ValueOf(bits);
      const float got = Widen(narrow.type, bits);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(got)) << Name(narrow.type) << " " << bits;
      } else {
        ASSERT_EQ(got, expected) << Name(narrow.type) << " " << bits;
        ASSERT_EQ(std::signbit(got), std::signbit(expected)) << Name(narrow.type) << " " << bits;
      }
    }
  }
}

TEST(NumericTest, NarrowsEveryWidenedPatternBackToItself) {
  for (const NarrowType& narrow : kNarrowTypes) {
    for (uint32_t bits = 0; bits < narrow.patterns(); ++bits) {
      const uint32_t back = Narrow(narrow.type, Widen(narrow.type, bits));
      if (std::isnan(narrow.ValueOf(bits))) {
        ASSERT_TRUE(std::isnan(narrow.ValueOf(back))) << Name(narrow.type) << " " << bits;
      } else {
        ASSERT_EQ(back, bits) << Name(narrow.type);
      }
    }
  }
}

// Between each two neighbours: just below, at and just above the middle.
TEST(NumericTest, RoundsEachMiddleToEvenAndItsSidesToTheNearest) {
  for (const NarrowType& narrow : kNarrowTypes) {
    for (uint32_t bits = 0; bits + 1 < narrow.sign_bit; ++bits) {
      const double low = narrow.ValueOf(bits), high = narrow.ValueOf(bits + 1);
      if (!std::isfinite(high)) continue;
      const auto middle = static_cast<float>((low + high) / 2);
      const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
      for (const uint32_t sign : {0u, narrow.sign_bit}) {
        const float s = sign == 0 ? 1.0f : -1.0f;
        ASSERT_EQ(Narrow(narrow.type, s * middle), even | sign) << Name(narrow.type) << bits;
        ASSERT_EQ(Narrow(narrow.type, s * std::nextafter(middle, 0.0f)), bits | sign)
            << Name(narrow.type) << bits;
        ASSERT_EQ(Narrow(narrow.type, s * std::nextafter(middle, kInf)), (bits + 1) | sign)
            << Name(narrow.type) << bits;
      }
    }
  }
}

TEST(NumericTest, F16OverflowsToInfinityFrom65520) {
  EXPECT_EQ(FloatToF16(65504), 0x7bff);
  EXPECT_EQ(FloatToF16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(FloatToF16(65520), 0x7c00);
  EXPECT_EQ(FloatToF16(-65520), 0xfc00);
  EXPECT_EQ(FloatToF16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(FloatToF16(-kInf), 0xfc00);
}

TEST(NumericTest, BF16OverflowsToInfinityPastTheLastMiddle) {
  EXPECT_EQ(FloatToBF16(std::bit_cast<float>(0x7f7f7fffu)), 0x7f7f);
  EXPECT_EQ(FloatToBF16(std::bit_cast<float>(0x7f7f8000u)), 0x7f80);
  EXPECT_EQ(FloatToBF16(-std::numeric_limits<float>::max()), 0xff80);
  EXPECT_EQ(FloatToBF16(kInf), 0x7f80);
}

TEST(NumericTest, E4M3HasNoInfinityAndBecomesNaNPast464) {
  EXPECT_EQ(FloatToF8E4M3(448), 0x7e);
  EXPECT_EQ(FloatToF8E4M3(449), 0x7e);
  EXPECT_EQ(FloatToF8E4M3(464), 0x7e);  // the middle to 480; 448 is even
  EXPECT_EQ(FloatToF8E4M3(std::nextafter(464.0f, kInf)), 0x7f);
  EXPECT_EQ(FloatToF8E4M3(465), 0x7f);
  EXPECT_EQ(FloatToF8E4M3(1e6f), 0x7f);
  EXPECT_EQ(FloatToF8E4M3(-1e6f), 0xff);
  EXPECT_EQ(FloatToF8E4M3(kInf), 0x7f);
  EXPECT_EQ(FloatToF8E4M3(kNaN), 0x7f);
}

TEST(NumericTest, E5M2OverflowsToInfinityFrom61440) {
  EXPECT_EQ(FloatToF8E5M2(57344), 0x7b);
  EXPECT_EQ(FloatToF8E5M2(std::nextafter(61440.0f, 0.0f)), 0x7b);
  EXPECT_EQ(FloatToF8E5M2(61440), 0x7c);
  EXPECT_EQ(FloatToF8E5M2(-kInf), 0xfc);
}

TEST(NumericTest, NaNOfAnyPayloadStaysNaN) {
  for (const uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    for (const NarrowType& narrow : kNarrowTypes) {
      const uint32_t got = Narrow(narrow.type, std::bit_cast<float>(bits));
      EXPECT_TRUE(std::isnan(narrow.ValueOf(got))) << Name(narrow.type) << " " << bits;
    }
  }
}

TEST(NumericTest, StoreElementRoundsFromDoubleOnce) {
  // Just above a middle of f16: rounding to fp32 first would land on the middle and then on even.
  const double above_middle = 1 + 0x1p-11 + 0x1p-40;
  const double below_middle = 1 + 3 * 0x1p-11 - 0x1p-40;
  std::byte bytes[8];
  StoreElement(bytes, DType::kF16, 0, above_middle);
  EXPECT_EQ(LoadElement(bytes, DType::kF16, 0), 1 + 0x1p-10);
  StoreElement(bytes, DType::kF16, 0, below_middle);
  EXPECT_EQ(LoadElement(bytes, DType::kF16, 0), 1 + 0x1p-10);
  StoreElement(bytes, DType::kF16, 0, 65520 - 1e-9);
  EXPECT_EQ(LoadElement(bytes, DType::kF16, 0), 65504);
  StoreElement(bytes, DType::kBF16, 0, 1e300);
  EXPECT_EQ(LoadElement(bytes, DType::kBF16, 0), kInf);
  StoreElement(bytes, DType::kBF16, 0, 1e-300);
  EXPECT_EQ(LoadElement(bytes, DType::kBF16, 0), 0);
}

TEST(NumericTest, StoresIntegersToTheNearestAndSaturates) {
  std::byte bytes[8];
  const auto stored = [&](DType type, double value) {
    StoreElement(bytes, type, 0, value);
    return LoadElement(bytes, type, 0);
  };
  EXPECT_EQ(stored(DType::kI8, 2.5), 2);
  EXPECT_EQ(stored(DType::kI8, 127.6), 127);
  EXPECT_EQ(stored(DType::kI8, -1000), -128);
  EXPECT_EQ(stored(DType::kI32, 1e12), 2147483647);
  EXPECT_EQ(stored(DType::kI32, -2147483648.0), -2147483648.0);
  EXPECT_EQ(stored(DType::kI32, kNaN), 0);
}

TEST(NumericTest, ConvertsBuffersOfAnyLengthAndAlignment) {
  for (const DType type :
       {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI8, DType::kF32}) {
    for (int64_t count = 0; count < 40; ++count) {
      std::vector<std::byte> bytes(static_cast<size_t>(count * SizeOf(type)) + 3, std::byte{0xee});
      std::vector<float> values(static_cast<size_t>(count) + 1, -77);
      for (int64_t i = 0; i < count; ++i) StoreElement(bytes.data() + 1, type, i, i - 20.0);
      WidenToFloat(bytes.data() + 1, type, count, values.data());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)], LoadElement(bytes.data() + 1, type, i));
      }
      EXPECT_EQ(values.back(), -77) << "wrote past the end";
      std::vector<std::byte> back(bytes.size(), std::byte{0xee});
      NarrowFromFloat(values.data(), type, count, back.data() + 1);
      EXPECT_EQ(back, bytes) << Name(type) << " " << count;
    }
  }
}

GemmProblem SmallProblem() {
  GemmProblem p;
  p.m = 2;
  p.n = 2;
  p.k = 3;
  return WithPackedLayouts(p);
}

TEST(ReferenceTest, MultipliesAsOnPaper) {
  GemmProblem p = SmallProblem();
  p.alpha = 2;
  p.beta = 10;
  p.bias = BiasAxis::kPerColumn;
  GemmData data(p, 1);
  data.SetA([](int64_t, int64_t i, int64_t l) { return static_cast<double>(i * 3 + l + 1); });
  data.SetB([](int64_t, int64_t l, int64_t j) { return static_cast<double>(l * 2 + j + 1); });
  data.SetC(Constant(1));
  data.SetBias([](int64_t, int64_t, int64_t j) { return j == 0 ? 100 : 200; });
  // [1 2 3; 4 5 6] [1 2; 3 4; 5 6] = [22 28; 49 64]
  EXPECT_EQ(ReferenceGemm(p, data.operands()), (std::vector<double>{154, 266, 208, 338}));
  p.op_a = Op::kT;
  p.op_b = Op::kT;
  p.bias = BiasAxis::kPerRow;
  p = WithPackedLayouts(p);
  GemmData transposed(p, 1);
  transposed.SetA([](int64_t, int64_t l, int64_t i) { return static_cast<double>(i * 3 + l + 1); });
  transposed.SetB([](int64_t, int64_t j, int64_t l) { return static_cast<double>(l * 2 + j + 1); });
  transposed.SetC(Constant(1));
  transposed.SetBias([](int64_t, int64_t, int64_t i) { return i == 0 ? 100 : 200; });
  EXPECT_EQ(ReferenceGemm(p, transposed.operands()), (std::vector<double>{154, 166, 308, 338}));
}

TEST(ReferenceTest, MagnitudeSumsTheTermsWithoutTheirSigns) {
  GemmProblem p = SmallProblem();
  p.alpha = -2;
  p.beta = -1;
  GemmData data(p, 1);
  data.SetA([](int64_t, int64_t, int64_t l) { return l == 0 ? -1 : 1; });
  data.SetB(Constant(-3));
  data.SetC(Constant(-5));
  EXPECT_EQ(ReferenceMagnitude(p, data.operands()), std::vector<double>(4, 2 * 9 + 5));
}

// act(x) as the reference computes it for D of `type`: a product of nothing, and x as its bias.
double Activated(DType type, Activation act, double x) {
  GemmProblem p = SmallProblem();
  p.type_a = p.type_b = p.type_d = type;
  p.m = p.n = 1;
  p.k = 0;
  p.bias = BiasAxis::kPerRow;
  p.act = act;
  GemmData data(WithPackedLayouts(p), 1);
  data.SetBias(Constant(x));
  return ReferenceGemm(data.problem(), data.operands()).front();
}

TEST(ReferenceTest, ActivatesAsDefined) {
  const auto activated = [](Activation act, double x) {
    return Activated(SmallProblem().type_d, act, x);
  };
  EXPECT_EQ(activated(Activation::kRelu, -2), 0);
  EXPECT_EQ(activated(Activation::kRelu, 3), 3);
  EXPECT_TRUE(std::isnan(activated(Activation::kRelu, kNaN)));
  EXPECT_NEAR(activated(Activation::kGelu, 1), 0.8413447460685429, 1e-15);
  EXPECT_NEAR(activated(Activation::kSilu, 1), 0.7310585786300049, 1e-15);
  EXPECT_EQ(activated(Activation::kGelu, -1e6), 0);
}

TEST(ReferenceTest, ActivationsKeepTheirTails) {
  const auto activated = [](Activation act, double x) { return Activated(DType::kF64, act, x); };
  // To more digits than doubles hold: x Phi(x) and x / (1 + exp(-x)).
  EXPECT_NEAR(activated(Activation::kGelu, -10) / -7.6198530241604975e-23, 1, 1e-12);
  EXPECT_NEAR(activated(Activation::kSilu, -89) / -1.9823535699982119e-37, 1, 1e-12);
  EXPECT_NEAR(activated(Activation::kSilu, -740) / -3.0997e-319, 1, 1e-2);
}

class CompareTest : public ::testing::Test {
 protected:
  // One f16 element whose reference is `expected`, to be compared with `got`.
  static Mismatch Compare(double expected, double got, DType type = DType::kF16) {
    GemmProblem p;
    p.m = p.n = p.k = 1;
    p.type_a = p.type_b = type == DType::kI32 ? DType::kI8 : type;
    p.type_d = type;
    p = WithPackedLayouts(p);
    GemmData data(p, 1);
    data.SetA(Constant(expected));
    data.SetB(Constant(1));
    StoreElement(data.operands().d, type, 0, got);
    return CompareWithReference(p, data.operands());
  }
};

TEST_F(CompareTest, AcceptsOneRoundingAndRefusesTwo) {
  EXPECT_TRUE(Compare(1, 1).ok);
  EXPECT_TRUE(Compare(1, 1 - 0x1p-11).ok);
  EXPECT_FALSE(Compare(1, 1 + 0x1p-10).ok);
  EXPECT_FALSE(Compare(0.0, 0x1p-20).ok);
}

TEST_F(CompareTest, NaNMeetsNaNAndNothingElse) {
  EXPECT_TRUE(Compare(kNaN, kNaN).ok);
  EXPECT_FALSE(Compare(kNaN, 0).ok);
  EXPECT_FALSE(Compare(1, kNaN).ok);
  EXPECT_FALSE(Compare(kInf, kNaN).ok);
}

TEST_F(CompareTest, InfinityMeetsTheSameInfinity) {
  EXPECT_TRUE(Compare(kInf, kInf).ok);
  EXPECT_FALSE(Compare(kInf, -kInf).ok);
  EXPECT_FALSE(Compare(kInf, 65504).ok);
  EXPECT_FALSE(Compare(65504, kInf).ok);
  EXPECT_FALSE(Compare(-1, -kInf).ok);
}

TEST_F(CompareTest, WhatRoundsPastTheLargestValueMustBeInfinite) {
  GemmProblem p;
  p.m = p.n = 1;
  p.k = 2;
  p.type_a = p.type_b = p.type_d = DType::kF16;
  p = WithPackedLayouts(p);
  GemmData data(p, 1);
  data.SetA(Constant(1));
  data.SetB(Constant(33000));
  StoreElement(data.operands().d, DType::kF16, 0, 65504);
  EXPECT_FALSE(CompareWithReference(p, data.operands()).ok);
  StoreElement(data.operands().d, DType::kF16, 0, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(CompareWithReference(p, data.operands()).ok);
}

TEST_F(CompareTest, IntegersMustBeEqual) {
  EXPECT_TRUE(Compare(100, 100, DType::kI32).ok);
  EXPECT_FALSE(Compare(100, 101, DType::kI32).ok);
}

TEST_F(CompareTest, NamesTheFirstWrongElement) {
  GemmProblem p = SmallProblem();
  p.batch = 2;
  p = WithPackedLayouts(p);
  GemmData data(p, 1);
  const std::vector<double> right = ReferenceGemm(p, data.operands());
  for (size_t i = 0; i < right.size(); ++i) {
    StoreElement(data.operands().d, DType::kF32, static_cast<int64_t>(i),
                 i >= 6 ? right[i] + 1 : right[i]);
  }
  const Mismatch mismatch = CompareWithReference(p, data.operands());
  EXPECT_FALSE(mismatch.ok);
  EXPECT_EQ(mismatch.first_wrong, 6);
  EXPECT_EQ(mismatch.ToString().rfind("2 of 8 elements wrong; first at [1, 1, 0]: ", 0), 0u)
      << mismatch.ToString();
}

}  // namespace
}  // namespace gemmd
