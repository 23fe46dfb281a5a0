#include "kernels/core/device_traits.h"

namespace gemmd {

DeviceTraits H200Traits() {
  return {
      .kind = DeviceKind::kCuda,
      .ordinal = 0,
      .name = "NVIDIA H200",
      .uuid = "",
      .compute_capability = 90,
      .sm_count = 132,
      .smem_per_block_bytes = 232448,
      .smem_per_sm_bytes = 233472,
      .smem_reserved_bytes = 1024,
      .registers_per_sm = 65536,
      .threads_per_sm = 2048,
      .blocks_per_sm = 32,
      .resident_pairs = 66,
      .l2_bytes = 60LL << 20,
      .memory_bytes = 143771LL << 20,
      .hbm_bytes_per_second = 4.24e12,
      .clock_hz = 1.98e9,
      .driver_version = 13000,
  };
}

DeviceTraits CpuTraits() { return {}; }

}  // namespace gemmd
