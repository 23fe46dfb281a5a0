// Timing of kernels: variants interleaved in one run, on operands that come from device memory.
//
// The card's clock follows its power limit, so only variants that were measured in turns within one
// run can be compared; each round starts with another of them. Each sample is one replay of a CUDA
// graph of several launches over rotating operand sets, so that neither launch gaps nor L2 hits
// from the launch before are in it.
#pragma once

#include <functional>
#include <stop_token>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/core/device_traits.h"
#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/core/timing.h"
#include "kernels/cuda/gemm_params.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_timer.h"

namespace gemmd {

// Enqueues launch number `index`; the variant picks its operand set by it.
using Enqueue = std::function<Status(int index, cudaStream_t stream)>;

inline constexpr int kFewLaunches = 4;  // of a sample, however long one takes

// A timing for each variant, in order, without stalls, as a PlanTimer's: a sample is a graph, of
// `min_launches` at least. CANCELLED soon after a request on `stop`.
StatusOr<std::vector<PlanTiming>> MeasureInterleaved(const std::vector<Enqueue>& variants,
                                                     const TimingOptions& options,
                                                     int min_launches = kFewLaunches,
                                                     const std::stop_token& stop = {});

// What a launch waited for, by its probe: one launch on the default stream of the device that
// `traits` are of, waited for. `params` has counters, and operands that nothing else uses
// meanwhile. Not measured where the kernel has no ring.
StatusOr<StallSample> MeasureStalls(const GemmProblem& problem, const Plan& plan,
                                    const GemmParams& params, const DeviceTraits& traits);

}  // namespace gemmd
