#include "kernels/backend_factory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/core/text.h"
#include "kernels/self_check.h"
#ifdef GEMMD_WITH_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif
#ifdef GEMMD_WITH_CPU
#include "kernels/cpu/cpu_backend.h"
#endif

namespace gemmd {
namespace {

using Backends = std::vector<std::unique_ptr<Backend>>;

constexpr int kMaxLanes = 64;

Status CheckOptions(const BackendOptions& options) {
  if (options.lanes < 1 || options.lanes > kMaxLanes) {
    return InvalidArgument("lanes", "lanes=" + std::to_string(options.lanes) + " is outside 1 .. " +
                                        std::to_string(kMaxLanes));
  }
  if (options.choice == BackendChoice::kCpu && !options.devices.empty()) {
    return InvalidArgument("devices", "devices names CUDA devices, backend=cpu has none");
  }
  std::vector<int> devices = options.devices;
  std::sort(devices.begin(), devices.end());
  const auto twice = std::adjacent_find(devices.begin(), devices.end());
  if (twice == devices.end()) return OkStatus();
  return InvalidArgument("devices", "devices names " + std::to_string(*twice) + " twice");
}

#ifdef GEMMD_WITH_CUDA
StatusOr<int> CudaDevices() { return UsableCudaDevices(); }

StatusOr<Backends> MakeCuda(const BackendOptions& options, int count) {
  std::vector<int> ordinals = options.devices;
  if (ordinals.empty()) {
    ordinals.resize(static_cast<size_t>(count));
    std::iota(ordinals.begin(), ordinals.end(), 0);
  }
  const CudaBackendOptions cuda{.lanes = options.lanes,
                                .device_pool_bytes = options.device_pool_bytes,
                                .pinned_pool_bytes = options.pinned_pool_bytes,
                                .pc_sampling_percent = options.pc_sampling_percent};
  Backends backends;
  for (const int ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= count) {
      return InvalidArgument("devices", "devices names " + std::to_string(ordinal) +
                                            ", the limit is " + std::to_string(count - 1));
    }
    ASSIGN_OR_RETURN(auto backend, MakeCudaBackend(ordinal, cuda));
    backends.push_back(std::move(backend));
  }
  return backends;
}
#else
StatusOr<int> CudaDevices() { return Unavailable("this build has no CUDA backend"); }
StatusOr<Backends> MakeCuda(const BackendOptions&, int) { return CudaDevices().status(); }
#endif

StatusOr<Backends> MakeCpu([[maybe_unused]] const BackendOptions& options) {
#ifdef GEMMD_WITH_CPU
  ASSIGN_OR_RETURN(auto backend,
                   MakeCpuBackend({.lanes = options.lanes, .threads = options.cpu_threads}));
  Backends backends;
  backends.push_back(std::move(backend));
  return backends;
#else
  return Unavailable("this build has no CPU backend");
#endif
}

StatusOr<BackendSet> Choose(const BackendOptions& options) {
  BackendSet set;
  const bool automatic = options.choice == BackendChoice::kAuto;
  const std::string prefix = automatic ? "auto: " : "asked for: ";
  std::string why_not_cuda;
  if (options.choice != BackendChoice::kCpu) {
    const StatusOr<int> count = CudaDevices();
    if (count.ok()) {
      ASSIGN_OR_RETURN(set.backends, MakeCuda(options, *count));
      set.reason = prefix + "cuda, " + Count(*count, "usable device");
      return set;
    }
    if (!automatic) return Unavailable("backend=cuda: " + count.status().message());
    why_not_cuda = count.status().message();
  }
  StatusOr<Backends> cpu = MakeCpu(options);
  if (cpu.status().code() == StatusCode::kUnavailable && automatic) {
    return Unavailable(prefix + why_not_cuda + "; " + cpu.status().message());
  }
  if (!cpu.ok()) return cpu.status();
  set.backends = *std::move(cpu);
  set.reason = prefix + "cpu" + (automatic ? ", because " + why_not_cuda : "");
  return set;
}

}  // namespace

StatusOr<BackendSet> MakeBackends(const BackendOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(BackendSet set, Choose(options));
  if (options.self_check) {
    for (const std::unique_ptr<Backend>& backend : set.backends) {
      RETURN_IF_ERROR(SelfCheck(*backend));
    }
  }
  return set;
}

}  // namespace gemmd
