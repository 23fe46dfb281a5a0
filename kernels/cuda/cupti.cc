#include "kernels/cuda/cupti.h"

#include <dlfcn.h>

namespace gemmd {

StatusOr<const Cupti*> Cupti::Load() {
  constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so"};
  void* handle = nullptr;
  std::string why;
  for (const char* name : kNames) {
    handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
    const char* const error = dlerror();
    if (why.empty()) why = error == nullptr ? std::string(name) + " cannot be loaded" : error;
  }
  if (handle == nullptr) return Unavailable(why);
  static Cupti cupti;
  std::string missing;
  const auto resolve = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  resolve(cupti.get_result_string, "cuptiGetResultString");
  resolve(cupti.subscribe, "cuptiSubscribe");
  resolve(cupti.enable_callback, "cuptiEnableCallback");
  resolve(cupti.enable, "cuptiPCSamplingEnable");
  resolve(cupti.disable, "cuptiPCSamplingDisable");
  resolve(cupti.get_num_stall_reasons, "cuptiPCSamplingGetNumStallReasons");
  resolve(cupti.get_stall_reasons, "cuptiPCSamplingGetStallReasons");
  resolve(cupti.set_configuration, "cuptiPCSamplingSetConfigurationAttribute");
  resolve(cupti.get_data, "cuptiPCSamplingGetData");
  if (!missing.empty()) return Unavailable("libcupti has no " + missing);
  return &cupti;
}

StatusOr<const Cupti*> Cupti::Get() {
  static const StatusOr<const Cupti*> kLoaded = Load();
  return kLoaded;
}

Status Cupti::ToStatus(CUptiResult result, std::string_view what) const {
  if (result == CUPTI_SUCCESS) return OkStatus();
  const char* words = nullptr;
  (void)get_result_string(result, &words);
  const std::string message = std::string(what) + " answers " +
                              std::to_string(static_cast<int>(result)) + " (" +
                              (words == nullptr ? "" : words) + ")";
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return Status(StatusCode::kPermissionDenied, message);
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return FailedPrecondition(message + ": another profiler is attached");
    case CUPTI_ERROR_NOT_SUPPORTED:
    case CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED: return Unimplemented(message);
    case CUPTI_ERROR_OUT_OF_MEMORY: return ResourceExhausted(message);
    default: return Internal(message);
  }
}

}  // namespace gemmd
