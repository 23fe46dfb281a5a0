// Launches of the laboratory's kernel on one device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/device_traits.h"
#include "kernels/core/status.h"
#include "kernels/cuda/handles.h"
#include "kernels/lab/lab_kernel.h"
#include "kernels/lab/reference.h"

namespace gemmd::lab {

inline constexpr int kMaxWork = 1 << 24;

struct Launch : RingSettings {  // traced only without a fault
  Mechanism mechanism = Mechanism::kCpAsync;
  Fault fault = Fault::kNone;
  int blocks = 1;
  bool wants_sums = false;
};

struct Outcome {
  double seconds = 0;                // of the launch, by device events
  std::vector<BlockReport> reports;  // [block]
  std::vector<uint32_t> sums;        // [block][step][warp], where they were wanted
  std::vector<uint32_t> trace;       // [block][step][warp][moment] of the traced blocks

  // Medians over the blocks, a step.
  double ClocksPerStep(int steps) const;
  double ReadyClocksPerStep(int steps) const;  // of these, waiting for panels
};

// Not thread-safe. All on one device, made current by each call.
class LabDevice {
 public:
  // UNAVAILABLE or UNIMPLEMENTED where there is no device that the laboratory can use,
  // RESOURCE_EXHAUSTED where the array does not fit.
  static StatusOr<LabDevice> Create(int ordinal, const ArrayShape& shape);

  const DeviceTraits& traits() const { return traits_; }
  const ArrayShape& shape() const { return shape_; }
  bool Has(Mechanism mechanism) const {
    return mechanism == Mechanism::kCpAsync || traits_.compute_capability == 90;
  }
  std::vector<Mechanism> mechanisms() const;  // that it has

  // New words in the array.
  Status Fill(uint32_t seed);
  // Launches and waits. INVALID_ARGUMENT that names what is out of range, UNIMPLEMENTED for a
  // mechanism that the device has not.
  StatusOr<Outcome> Run(const Launch& launch);
  // Blocks that an SM holds at once, as the driver says.
  StatusOr<int> DriverResidentBlocks(const Launch& launch);

 private:
  LabDevice(DeviceTraits traits, const ArrayShape& shape)
      : traits_(std::move(traits)), shape_(shape) {}

  Status Check(const Launch& launch) const;
  // Raised to what the launch needs; its entry.
  StatusOr<const void*> Prepare(const Launch& launch) const;
  // At least `bytes` of device memory in *buffer.
  static Status Reserve(int64_t bytes, int64_t* held, DeviceBuffer* buffer);

  DeviceTraits traits_;
  ArrayShape shape_;
  CUtensorMap map_{};
  Stream stream_;
  Event start_, stop_;
  DeviceBuffer array_, reports_, sums_, trace_;
  int64_t report_bytes_ = 0, sum_bytes_ = 0, trace_bytes_ = 0;
};

}  // namespace gemmd::lab
