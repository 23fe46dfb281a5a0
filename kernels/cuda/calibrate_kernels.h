// The kernels that calibration times (instances/calibrate.cu, instances/calibrate_tma.cu): rings
// that load panels and use none of them, and products of panels that are there already.
#pragma once

#include <cstdint>

#include <cuda.h>

namespace gemmd {

// A panel of the cp.async ring. Eight of them fit every device's shared memory.
inline constexpr int kLoadCpAsyncThreads = 256;
inline constexpr int kLoadCpAsyncPanelBytes = 12 << 10;

// A panel of the TMA ring is one box.
inline constexpr int kLoadTmaBoxRows = 64;
inline constexpr int kLoadTmaPanelBytes = kLoadTmaBoxRows * 128;
inline constexpr int kLoadTmaThreads = 32 + 128;  // the producer's warp and four consumers
inline constexpr int kLoadTmaMaxStages = 16;
inline constexpr int64_t kLoadTmaBarrierBytes = 1024;  // keeps the panels aligned to the swizzle

// One block an SM. Block i starts at the i-th of gridDim.x equal shares of the panels, and walks on
// from there, over the end to the first.
struct LoadParams {
  CUtensorMap map;             // of the panels, one after another: the TMA ring's
  const void* data = nullptr;  // the same: the cp.async ring's
  int panels = 1;
  int stages = 1;
  int steps = 1;  // of a block
};

// Shared memory: stages * kLoadCpAsyncPanelBytes; stages up to kMaxCpAsyncStages.
const void* LoadCpAsyncEntry();
// For sm_90 alone. Shared memory: kLoadTmaBarrierBytes + stages * kLoadTmaPanelBytes.
const void* LoadTmaEntry();

// One block an SM, of `steps` steps. `sums` is null: it is there so that the products are not left
// out as unused.
struct MultiplyParams {
  int steps = 1;
  float* sums = nullptr;
};

// Eight warps that multiply fragments in registers: no shared memory.
inline constexpr int kMultiplyMmaThreads = 256;
inline constexpr double kMultiplyMmaFlopsPerStep = 8.0 * 16 * (2.0 * 16 * 8 * 16);
const void* MultiplyMmaEntry();

// For sm_90 alone. Two warpgroups, each of which multiplies 64 rows of A by the 256 columns of B
// that both share, 64 values of K a step, out of shared memory.
inline constexpr int kMultiplyWgmmaThreads = 256;
inline constexpr int64_t kMultiplyWgmmaSmemBytes = int64_t{128 + 256} * 64 * 2;
inline constexpr double kMultiplyWgmmaFlopsPerStep = 2.0 * 128 * 256 * 64;
const void* MultiplyWgmmaEntry();

}  // namespace gemmd
