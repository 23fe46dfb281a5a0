// NVIDIA's management library, looked for at run time: no header of it and no link to it, so that
// the server builds and runs where there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/core/status.h"

namespace gemmd {

struct NvmlDevice;  // the library's own

// Thread-safe. A call may block for as long as the driver does.
//
// A query answers in base units, or with
//   UNIMPLEMENTED  this library or this device never answers it;
//   UNAVAILABLE    the device is lost, for as long as the process lives;
//   INTERNAL       anything else: it may answer the next time.
class Nvml {
 public:
  // Valid for as long as the Nvml.
  using Device = NvmlDevice*;

  // `library` is a name for the loader or a path. UNAVAILABLE where there is no such library, it is
  // not NVML, or it cannot be initialised.
  static StatusOr<std::unique_ptr<Nvml>> Load(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // The device that CUDA calls "GPU-..."; NOT_FOUND where the library knows none.
  StatusOr<Device> Find(const std::string& uuid) const;

  StatusOr<double> SmUtilization(Device device) const;      // 0 to 1
  StatusOr<double> MemoryUtilization(Device device) const;  // 0 to 1
  StatusOr<double> MemoryUsed(Device device) const;         // bytes
  StatusOr<double> MemoryTotal(Device device) const;        // bytes
  StatusOr<double> Power(Device device) const;              // watts
  StatusOr<double> PowerLimit(Device device) const;         // watts
  StatusOr<double> Temperature(Device device) const;        // degrees Celsius
  StatusOr<double> SmClock(Device device) const;            // hertz
  StatusOr<double> MemoryClock(Device device) const;        // hertz
  // Why the clocks are below what they could be: NVML's bits.
  StatusOr<uint64_t> ClocksEventReasons(Device device) const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);

  const std::unique_ptr<Library> library_;
};

}  // namespace gemmd
