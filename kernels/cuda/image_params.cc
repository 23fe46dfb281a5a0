#include "kernels/cuda/image_params.h"

#include <cstdint>
#include <cstring>

namespace gemmd {

GemmParams ParamsFor(const DeviceImage& image, std::byte* base) {
  const auto at = [base](const ImageMatrix& m) {
    return m.matrices > 0 ? base + m.offset : nullptr;
  };
  GemmParams params;
  params.a = at(image.a);
  params.b = at(image.b);
  params.c = at(image.c);
  params.d = at(image.d);
  params.bias = base + image.bias_offset;
  params.lda = image.a.ld, params.stride_a = image.a.batch_stride;
  params.ldb = image.b.ld, params.stride_b = image.b.batch_stride;
  params.ldc = image.c.ld, params.stride_c = image.c.batch_stride;
  params.ldd = image.d.ld, params.stride_d = image.d.batch_stride;
  params.counters = reinterpret_cast<unsigned long long*>(base + image.counters_offset);
  return params;
}

StallSample ReadCounters(const std::byte* at) {
  uint64_t values[kStallCounters] = {};
  for (int slot = 0; slot < kStallSlots; ++slot) {
    uint64_t of_slot[kStallCounters];
    std::memcpy(of_slot, at + int64_t{slot} * kStallSlotStride * 8, sizeof(of_slot));
    for (int i = 0; i < kStallCounters; ++i) values[i] += of_slot[i];
  }
  return {.measured = true,
          .wait_full = values[0],
          .wait_empty = values[1],
          .mainloop = values[2],
          .epilogue = values[3],
          .k_tiles = values[4]};
}

}  // namespace gemmd
