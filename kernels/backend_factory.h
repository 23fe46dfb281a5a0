// Makes the backends of a server: the only place that names a concrete one, and the only source
// file with an #ifdef for CUDA.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/status.h"

namespace gemmd {

enum class BackendChoice : uint8_t { kAuto, kCuda, kCpu };

struct BackendOptions {
  BackendChoice choice = BackendChoice::kAuto;
  std::vector<int> devices;                      // CUDA ordinals; empty: all of them
  int lanes = 4;                                 // per device, 1 .. 64
  int64_t device_pool_bytes = int64_t{4} << 30;  // per device
  int64_t pinned_pool_bytes = int64_t{1} << 30;  // per device
  int cpu_threads = 0;  // BLAS threads over all lanes; 0: the cores of this machine
  // Of the fullest rate at which CUDA devices sample program counters, where the driver permits it;
  // 0: they do not.
  double pc_sampling_percent = 1;
  bool self_check = true;  // verify every kernel on small problems before serving
};

struct BackendSet {
  std::vector<std::unique_ptr<Backend>> backends;  // at least one; all of one kind
  std::string reason;  // why this kind was taken: "auto: 1 usable CUDA device", ...
};

// kAuto takes CUDA where a usable device is present. UNAVAILABLE when kCuda was asked for and there
// is none (or this build has no CUDA); INTERNAL when a kernel's self-check fails.
StatusOr<BackendSet> MakeBackends(const BackendOptions& options);

}  // namespace gemmd
