// What a kernel is given: one struct for all families, passed by value as a __grid_constant__.
#pragma once

#include <cstdint>

#include "kernels/core/gemm_types.h"

namespace gemmd {

// Bytes behind A and behind B that a kernel may read, and does not use.
inline constexpr int kReadBeyond = 128;

// Pointers are device memory. Rows of A, B, C and D start on 16-byte boundaries (ld and batch
// stride in bytes are multiples of 16), which the pitched images of device_image.cc guarantee. C
// and bias may be null where beta = 0 and bias_axis = kNone.
struct GemmParams {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  const void* bias = nullptr;
  void* d = nullptr;
  int64_t lda = 0, ldb = 0, ldc = 0, ldd = 0;                      // elements
  int64_t stride_a = 0, stride_b = 0, stride_c = 0, stride_d = 0;  // elements, 0 = broadcast
  int m = 0, n = 0, k = 0, batch = 0;
  int m_tiles = 0, n_tiles = 0, k_tiles = 0;  // k_tiles >= 1 for every kernel with a product
  int stages = 0;
  int store_buffers = 0;  // a consumer warpgroup, of the TMA kernels
  // Of the TMA kernels: parts that each tile's K steps are computed in, which are left as matrices
  // of D.
  int parts = 1;
  // Whether blocks work in pairs (clusters of 2) with neighbouring tiles, which share the panel
  // that is the same for both. m_tiles or n_tiles then counts pairs (PairsAlongM of
  // plan/kernel_config.h).
  bool pair = false;
  uint32_t stage_bytes = 0;  // of a stage, that its copies bring
  // For parts: kWorkspaceBytes of device memory (plan/kernel_config.h), used by
  // one launch at a time.
  void* workspace = nullptr;
  float alpha = 1.0F, beta = 0.0F;
  BiasAxis bias_axis = BiasAxis::kNone;
  Activation act = Activation::kNone;
  bool f32_result = false;  // C, bias and D are fp32 though the operands are 16-bit
  // kStallBytes, zeroed: what the blocks of the launch add their counts to; null: no probe.
  unsigned long long* counters = nullptr;
};

// A launch's counters: kStallSlots times kStallCounters sums, in the order of StallSample, each
// slot of every kStallSlots-th block. Blocks end at about the same time, and additions to one
// address wait for one another: with one slot that cost a product of 3 us a twenty-fifth of its
// time.
inline constexpr int kStallCounters = 5;  // wait_full, wait_empty, mainloop, epilogue, k_tiles
inline constexpr int kStallSlots = 16;
inline constexpr int kStallSlotStride = 16;  // counters from one slot to the next: a cache line
inline constexpr int kStallBytes = kStallSlots * kStallSlotStride * 8;

}  // namespace gemmd
