// PcSampler of a CUDA device, by CUPTI's program counter sampling in its continuous mode: kernels
// run side by side as ever, and a sample costs them nothing but what the hardware takes to write
// it.
//
// It samples from its creation to its end. CUPTI can start and stop in between, but holds a lock of
// its own then while it waits for the driver's, in the opposite order to every launch: with
// launches on other threads the process stands still for ever.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "kernels/core/status.h"
#include "kernels/pc_sampler.h"

namespace gemmd {

// Has CUPTI show us the code that the driver loads from now on, without which samples have no
// ranges. Once a process, before kernels are loaded. Errors as Cupti::ToStatus.
Status WatchLoadedCode();

// Of the current device and its context; `kernels` is KernelFunctions(), `percent` of the fullest
// rate above 0. After WatchLoadedCode(), and while nothing is launched, as at its destruction.
// Errors as Cupti::ToStatus.
StatusOr<std::unique_ptr<PcSampler>> MakeCuptiSampler(std::map<std::string, int> kernels,
                                                      double percent);

}  // namespace gemmd
