// Reads what NVML knows of the devices that serve, and says once of each thing what it cannot read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <spdlog/logger.h>

#include "kernels/core/status.h"
#include "server/metrics/nvml.h"

namespace gemmd {

struct GpuGauge {
  const char* name;
  const char* help;
  StatusOr<double> (Nvml::*read)(Nvml::Device device) const;
};
inline constexpr GpuGauge kGpuGauges[] = {
    {"gemmd_gpu_sm_utilization_ratio",
     "Part of the driver's last sampling period in which a kernel ran, of any process.",
     &Nvml::SmUtilization},
    {"gemmd_gpu_memory_utilization_ratio",
     "Part of the driver's last sampling period in which device memory was read or written.",
     &Nvml::MemoryUtilization},
    {"gemmd_gpu_memory_used_bytes",
     "Device memory that is taken, by any process and by the driver itself.", &Nvml::MemoryUsed},
    {"gemmd_gpu_memory_total_bytes", "Device memory that there is.", &Nvml::MemoryTotal},
    {"gemmd_gpu_power_watts", "Power that the device draws.", &Nvml::Power},
    {"gemmd_gpu_power_limit_watts",
     "Power that the driver lets it draw, by the least of all limits.", &Nvml::PowerLimit},
    {"gemmd_gpu_temperature_celsius", "Temperature of the GPU's core.", &Nvml::Temperature},
    {"gemmd_gpu_sm_clock_hertz", "Clock of the SMs.", &Nvml::SmClock},
    {"gemmd_gpu_memory_clock_hertz", "Clock of the device memory.", &Nvml::MemoryClock},
};
inline constexpr const char* kThrottleName = "gemmd_gpu_throttle_reason";

// Of one device at one time; what could not be read is absent.
struct GpuSample {
  std::array<std::optional<double>, std::size(kGpuGauges)> values;
  std::optional<uint64_t> clocks_event_reasons;
};

struct GpuDevice {
  int ordinal = 0;   // the device's label
  std::string uuid;  // as CUDA says it: "GPU-..."
};

class GpuReader {  // For one thread at a time. Each call may block for as long as the driver does.
 public:
  // UNAVAILABLE without NVML, and why.
  static StatusOr<std::unique_ptr<GpuReader>> Open(const std::string& library,
                                                   const std::vector<GpuDevice>& devices,
                                                   std::shared_ptr<spdlog::logger> log);

  // Of the device at `index` of those given; nullopt once it is lost, or where NVML never knew it.
  std::optional<GpuSample> Read(size_t index);

 private:
  // What was asked and how that went, of one device.
  struct State {
    int ordinal = 0;
    std::optional<Nvml::Device> device;  // nullopt: not to be asked any more
    struct Query {
      bool never = false;  // answered, nor asked
      bool told = false;
    };
    std::array<Query, std::size(kGpuGauges) + 1> queries;  // the last is of the reasons
  };

  GpuReader(std::unique_ptr<Nvml> nvml, std::shared_ptr<spdlog::logger> log);
  // nullopt where `read` fails; then the query or the device may be off from now on.
  template <typename T>
  std::optional<T> Ask(State& state, size_t query, const char* name,
                       StatusOr<T> (Nvml::*read)(Nvml::Device device) const);

  const std::unique_ptr<Nvml> nvml_;
  const std::shared_ptr<spdlog::logger> log_;
  std::vector<State> states_;
};

}  // namespace gemmd
