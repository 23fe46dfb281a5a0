// Conversions between the element types and host arithmetic. All round to nearest even; fp8 e4m3
// has no infinity: finite values beyond 448 saturate only when asked, else become NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/gemm_types.h"

namespace gemmd {

float F16ToFloat(uint16_t bits);
uint16_t FloatToF16(float value);
float BF16ToFloat(uint16_t bits);
uint16_t FloatToBF16(float value);
float F8E4M3ToFloat(uint8_t bits);
uint8_t FloatToF8E4M3(float value);
float F8E5M2ToFloat(uint8_t bits);
uint8_t FloatToF8E5M2(float value);

// Widen or narrow `count` contiguous elements. `type` is any but kF64 and kI32.
void WidenToFloat(const std::byte* src, DType type, int64_t count, float* dst);
void NarrowFromFloat(const float* src, DType type, int64_t count, std::byte* dst);

// Element `index` of `base`, unaligned access allowed. Slow: for references and tests.
double LoadElement(const std::byte* base, DType type, int64_t index);
// Rounds once from double to `type` (integers: to nearest, saturating).
void StoreElement(std::byte* base, DType type, int64_t index, double value);

}  // namespace gemmd
