#include "kernels/core/numeric.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace gemmd {
namespace {

// A float narrower than fp32. The conversions below are free of branches on data, so that loops
// over them vectorise.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // else the largest pattern is NaN and the one below it the largest value
};
constexpr Format kF16 = {5, 10, true};
constexpr Format kE4M3 = {4, 3, false};
constexpr Format kE5M2 = {5, 2, true};

constexpr int Bias(Format f) { return (1 << (f.exponent_bits - 1)) - 1; }
constexpr uint32_t MagnitudeMask(Format f) {
  return (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
}
constexpr uint32_t FirstNonFinite(Format f) {
  const uint32_t exponent_mask = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  return f.has_infinity ? exponent_mask : MagnitudeMask(f);
}
constexpr uint32_t QuietNan(Format f) {
  return f.has_infinity ? FirstNonFinite(f) | 1u << (f.mantissa_bits - 1) : MagnitudeMask(f);
}
constexpr int SmallestSubnormalExponent(Format f) { return 1 - Bias(f) - f.mantissa_bits; }
constexpr float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

template <Format kFormat>
float Widen(uint32_t bits) {
  constexpr int kShift = 23 - kFormat.mantissa_bits;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Bias(kFormat)) << 23;
  const uint32_t magnitude = bits & MagnitudeMask(kFormat);
  const uint32_t sign = (bits ^ magnitude) << (31 - kFormat.exponent_bits - kFormat.mantissa_bits);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) *
                          PowerOfTwo(SmallestSubnormalExponent(kFormat));
  uint32_t wide = magnitude < (1u << kFormat.mantissa_bits) ? std::bit_cast<uint32_t>(subnormal)
                                                            : (magnitude << kShift) + kRebias;
  if (magnitude >= FirstNonFinite(kFormat)) wide = (magnitude << kShift) | 0x7f800000u;
  return std::bit_cast<float>(wide | sign);
}

template <Format kFormat>
uint32_t Narrow(float value) {
  constexpr int kShift = 23 - kFormat.mantissa_bits;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Bias(kFormat)) << 23;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - Bias(kFormat)) << 23;
  // One unit in the last place of this power of two is the smallest subnormal, so the addition
  // rounds to a multiple of it.
  constexpr float kSubnormalGrid = PowerOfTwo(SmallestSubnormalExponent(kFormat) + 23);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits >> 31) << (kFormat.exponent_bits + kFormat.mantissa_bits);

  const uint32_t odd = (magnitude >> kShift) & 1u;
  const uint32_t half_below = (1u << (kShift - 1)) - 1;
  uint32_t narrow = (magnitude - kRebias + half_below + odd) >> kShift;
  const float on_grid = std::bit_cast<float>(magnitude) + kSubnormalGrid;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(on_grid) - std::bit_cast<uint32_t>(kSubnormalGrid);
  if (magnitude < kSmallestNormal) narrow = subnormal;
  const bool too_large = magnitude >= kSmallestNormal && narrow > FirstNonFinite(kFormat);
  if (too_large) narrow = FirstNonFinite(kFormat);
  if (magnitude > 0x7f800000u) narrow = QuietNan(kFormat);
  return narrow | sign;
}

float WidenBF16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t NarrowBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

// NaN becomes 0.
template <typename Int>
Int RoundSaturating(double value) {
  if (std::isnan(value)) return 0;
  constexpr double kLow = std::numeric_limits<Int>::min(), kHigh = std::numeric_limits<Int>::max();
  return static_cast<Int>(std::nearbyint(std::fmin(std::fmax(value, kLow), kHigh)));
}

int8_t NarrowI8(float value) { return RoundSaturating<int8_t>(value); }

// Narrowing the result once more rounds as narrowing `value` itself would: a discarded part sets
// the last bit ("round to odd"), and every target of the second step has two bits fewer or more.
float ToFloatRoundingToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <typename T>
T Load(const std::byte* base, int64_t index) {
  T value;
  std::memcpy(&value, base + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void Store(std::byte* base, int64_t index, T value) {
  std::memcpy(base + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename T, auto kConvert>
void WidenAll(const std::byte* __restrict src, int64_t count, float* __restrict dst) {
  for (int64_t i = 0; i < count; ++i) dst[i] = kConvert(Load<T>(src, i));
}

template <typename T, auto kConvert>
void NarrowAll(const float* __restrict src, int64_t count, std::byte* __restrict dst) {
  for (int64_t i = 0; i < count; ++i) Store<T>(dst, i, static_cast<T>(kConvert(src[i])));
}

float WidenI8(int8_t value) { return static_cast<float>(value); }

}  // namespace

float F16ToFloat(uint16_t bits) { return Widen<kF16>(bits); }
uint16_t FloatToF16(float value) { return static_cast<uint16_t>(Narrow<kF16>(value)); }
float BF16ToFloat(uint16_t bits) { return WidenBF16(bits); }
uint16_t FloatToBF16(float value) { return NarrowBF16(value); }
float F8E4M3ToFloat(uint8_t bits) { return Widen<kE4M3>(bits); }
uint8_t FloatToF8E4M3(float value) { return static_cast<uint8_t>(Narrow<kE4M3>(value)); }
float F8E5M2ToFloat(uint8_t bits) { return Widen<kE5M2>(bits); }
uint8_t FloatToF8E5M2(float value) { return static_cast<uint8_t>(Narrow<kE5M2>(value)); }

void WidenToFloat(const std::byte* src, DType type, int64_t count, float* dst) {
  switch (type) {
    case DType::kF16: return WidenAll<uint16_t, Widen<kF16>>(src, count, dst);
    case DType::kBF16: return WidenAll<uint16_t, WidenBF16>(src, count, dst);
    case DType::kF8E4M3: return WidenAll<uint8_t, Widen<kE4M3>>(src, count, dst);
    case DType::kF8E5M2: return WidenAll<uint8_t, Widen<kE5M2>>(src, count, dst);
    case DType::kI8: return WidenAll<int8_t, WidenI8>(src, count, dst);
    case DType::kF32:
      if (count > 0) std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kF64:
    case DType::kI32: return;
  }
}

void NarrowFromFloat(const float* src, DType type, int64_t count, std::byte* dst) {
  switch (type) {
    case DType::kF16: return NarrowAll<uint16_t, Narrow<kF16>>(src, count, dst);
    case DType::kBF16: return NarrowAll<uint16_t, NarrowBF16>(src, count, dst);
    case DType::kF8E4M3: return NarrowAll<uint8_t, Narrow<kE4M3>>(src, count, dst);
    case DType::kF8E5M2: return NarrowAll<uint8_t, Narrow<kE5M2>>(src, count, dst);
    case DType::kI8: return NarrowAll<int8_t, NarrowI8>(src, count, dst);
    case DType::kF32:
      if (count > 0) std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kF64:
    case DType::kI32: return;
  }
}

double LoadElement(const std::byte* base, DType type, int64_t index) {
  switch (type) {
    case DType::kF16: return F16ToFloat(Load<uint16_t>(base, index));
    case DType::kBF16: return BF16ToFloat(Load<uint16_t>(base, index));
    case DType::kF32: return Load<float>(base, index);
    case DType::kF64: return Load<double>(base, index);
    case DType::kF8E4M3: return F8E4M3ToFloat(Load<uint8_t>(base, index));
    case DType::kF8E5M2: return F8E5M2ToFloat(Load<uint8_t>(base, index));
    case DType::kI8: return Load<int8_t>(base, index);
    case DType::kI32: return Load<int32_t>(base, index);
  }
  return 0;
}

void StoreElement(std::byte* base, DType type, int64_t index, double value) {
  const float odd = ToFloatRoundingToOdd(value);
  switch (type) {
    case DType::kF16: return Store(base, index, FloatToF16(odd));
    case DType::kBF16: return Store(base, index, FloatToBF16(odd));
    case DType::kF32: return Store(base, index, static_cast<float>(value));
    case DType::kF64: return Store(base, index, value);
    case DType::kF8E4M3: return Store(base, index, FloatToF8E4M3(odd));
    case DType::kF8E5M2: return Store(base, index, FloatToF8E5M2(odd));
    case DType::kI8: return Store(base, index, RoundSaturating<int8_t>(value));
    case DType::kI32: return Store(base, index, RoundSaturating<int32_t>(value));
  }
}

}  // namespace gemmd
