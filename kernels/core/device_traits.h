// What planning needs to know of a device; plain numbers, so that plans for any device can be made
// and tested on a host without one.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/core/calibration.h"

namespace gemmd {

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct DeviceTraits {
  DeviceKind kind = DeviceKind::kCpu;
  int ordinal = 0;
  std::string name = "cpu";    // as the driver says it
  std::string uuid;            // empty for a CPU
  int compute_capability = 0;  // 90 for sm_90; 0 for a CPU
  int sm_count = 0;
  int64_t smem_per_block_bytes = 0;  // largest dynamic shared memory one block may ask for
  int64_t smem_per_sm_bytes = 0;
  int64_t smem_reserved_bytes = 0;  // the driver's share of each resident block
  int registers_per_sm = 0;         // 32-bit
  int threads_per_sm = 0;
  int blocks_per_sm = 0;
  // Pairs of blocks (clusters of 2) that are resident at once where each block takes a whole SM; 0
  // where the device has no clusters.
  int resident_pairs = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  double hbm_bytes_per_second = 0;  // measured copy rate where known, else the driver's figure
  double clock_hz = 0;              // highest SM clock
  // Of this device where it was measured; a planner of a CPU asks for none of it.
  Calibration calibration = kH200Calibration;
  int driver_version = 0;  // as cudaDriverGetVersion gives it: 13000 for 13.0
};

// An H200 as measured, for tests and for planning without a device.
DeviceTraits H200Traits();
DeviceTraits CpuTraits();

}  // namespace gemmd
