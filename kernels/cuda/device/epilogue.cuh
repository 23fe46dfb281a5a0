// From an accumulator to D: act(alpha * acc + beta * C + bias), one rounding, in runs of adjacent
// columns of one row.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/gemm_params.h"

namespace gemmd {

__device__ __forceinline__ float ToFloat(float v) { return v; }
__device__ __forceinline__ float ToFloat(__half v) { return __half2float(v); }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 v) { return __bfloat162float(v); }

template <typename T>
__device__ __forceinline__ T FromFloat(float v);
template <>
__device__ __forceinline__ float FromFloat<float>(float v) {
  return v;
}
template <>
__device__ __forceinline__ __half FromFloat<__half>(float v) {
  return __float2half_rn(v);
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}

// As many elements as one access of up to 16 bytes moves.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount > 16 ? 16 : sizeof(T) * kCount) Run {
  T v[kCount];
};

// Reads kCount adjacent elements of which the first `valid` exist; `aligned` says that the run
// starts on its own size. Missing elements read as 0.
template <typename T, int kCount>
__device__ __forceinline__ void LoadRun(const T* src, int valid, float (&out)[kCount]) {
  if (valid >= kCount) {
    const Run<T, kCount> run = *reinterpret_cast<const Run<T, kCount>*>(src);
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] = ToFloat(run.v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] = i < valid ? ToFloat(src[i]) : 0.0F;
  }
}

template <typename T, int kCount>
__device__ __forceinline__ void StoreRun(T* dst, int valid, const float (&in)[kCount]) {
  if (valid >= kCount) {
    Run<T, kCount> run;
#pragma unroll
    for (int i = 0; i < kCount; ++i) run.v[i] = FromFloat<T>(in[i]);
    *reinterpret_cast<Run<T, kCount>*>(dst) = run;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < valid) dst[i] = FromFloat<T>(in[i]);
    }
  }
}

template <int kCount>
__device__ __forceinline__ void Activate(Activation act, float (&x)[kCount]) {
  switch (act) {
    case Activation::kNone: break;
    case Activation::kRelu:  // not fmaxf, which would turn NaN into 0
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = x[i] < 0.0F ? 0.0F : x[i];
      break;
    case Activation::kGelu:
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = 0.5F * x[i] * erfcf(x[i] * -0.70710678F);
      break;
    case Activation::kSilu:
#pragma unroll
      for (int i = 0; i < kCount; ++i) {  // as x / (1 + exp(-x)), which overflows
        const float e = expf(-fabsf(x[i]));
        x[i] *= (x[i] < 0.0F ? e : 1.0F) / (1.0F + e);
      }
      break;
  }
}

// T is the type of C, bias and D. The run starts at (row, col) with col a multiple of kCount;
// `valid` of its columns are inside D. `acc` holds alpha's operand, or zeros where there is no
// product.
template <typename T, int kCount>
__device__ __forceinline__ void FinishRun(const GemmParams& p, int64_t batch, int row, int col,
                                          float (&acc)[kCount]) {
  const int valid = min(kCount, p.n - col);
  if (valid <= 0 || row >= p.m) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) acc[i] *= p.alpha;
  float other[kCount];
  if (p.beta != 0.0F) {
    const T* c = static_cast<const T*>(p.c) + batch * p.stride_c + row * p.ldc + col;
    LoadRun<T, kCount>(c, valid, other);
#pragma unroll
    for (int i = 0; i < kCount; ++i) acc[i] = fmaf(p.beta, other[i], acc[i]);
  }
  if (p.bias_axis == BiasAxis::kPerColumn) {
    LoadRun<T, kCount>(static_cast<const T*>(p.bias) + col, valid, other);
#pragma unroll
    for (int i = 0; i < kCount; ++i) acc[i] += other[i];
  } else if (p.bias_axis == BiasAxis::kPerRow) {
    const float bias = ToFloat(static_cast<const T*>(p.bias)[row]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) acc[i] += bias;
  }
  Activate(p.act, acc);
  T* d = static_cast<T*>(p.d) + batch * p.stride_d + row * p.ldd + col;
  StoreRun<T, kCount>(d, valid, acc);
}

}  // namespace gemmd
