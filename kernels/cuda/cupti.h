// CUPTI, looked for at run time: the server builds with its headers and runs without it.
#pragma once

#include <string>
#include <string_view>

#include <cupti_callbacks.h>
#include <cupti_pcsampling.h>

#include "kernels/core/status.h"

namespace gemmd {

// One a process, for as long as it lives. Its functions are thread-safe.
class Cupti {
 public:
  // UNAVAILABLE, and why, where there is no such library or it lacks what we use.
  static StatusOr<const Cupti*> Get();

  // PERMISSION_DENIED where the driver lets only root sample, FAILED_PRECONDITION where another
  // profiler is attached, UNIMPLEMENTED where the device cannot, RESOURCE_EXHAUSTED where the
  // samples outgrew their memory, else INTERNAL; the message holds `what` and CUPTI's words.
  Status ToStatus(CUptiResult result, std::string_view what) const;

  decltype(&cuptiGetResultString) get_result_string = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiEnableCallback) enable_callback = nullptr;
  decltype(&cuptiPCSamplingEnable) enable = nullptr;
  decltype(&cuptiPCSamplingDisable) disable = nullptr;
  decltype(&cuptiPCSamplingGetNumStallReasons) get_num_stall_reasons = nullptr;
  decltype(&cuptiPCSamplingGetStallReasons) get_stall_reasons = nullptr;
  decltype(&cuptiPCSamplingSetConfigurationAttribute) set_configuration = nullptr;
  decltype(&cuptiPCSamplingGetData) get_data = nullptr;

 private:
  static StatusOr<const Cupti*> Load();
};

}  // namespace gemmd
