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

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/core/timing.h"
#include "kernels/cuda/gemm_params.h"
#include "kernels/plan/plan.h"

namespace gemmd {

struct Timing {
  double median_us = 0;  // of one launch
  double p5_us = 0;
  double p95_us = 0;
};

struct MeasureOptions {
  int rounds = 7;                // samples of each variant
  double sample_seconds = 3e-3;  // a graph is as many launches as take about this long,
  int min_launches = 4;          // but no fewer than these
  // A variant whose first launches take more than so many times those of the fastest before it is
  // not timed further: they are its time. 0: all are.
  double hopeless = 0;
};

// Enqueues launch number `index`; the variant picks its operand set by it.
using Enqueue = std::function<Status(int index, cudaStream_t stream)>;

// One Timing for each variant, in order. CANCELLED soon after a request on `stop`.
StatusOr<std::vector<Timing>> MeasureInterleaved(const std::vector<Enqueue>& variants,
                                                 const MeasureOptions& options = {},
                                                 const std::stop_token& stop = {});

// What a launch waited for, by its probe: one launch on the default stream, waited for. `params`
// has counters, and operands that nothing else uses meanwhile. Not measured where the kernel has no
// ring.
StatusOr<StallSample> MeasureStalls(const GemmProblem& problem, const Plan& plan,
                                    const GemmParams& params);

}  // namespace gemmd
