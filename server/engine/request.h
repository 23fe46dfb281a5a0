// One product on its way through the engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/backend.h"
#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/core/timing.h"
#include "kernels/plan/plan.h"

namespace gemmd {

using SteadyClock = std::chrono::steady_clock;

struct GemmResult {
  Status status;        // OK: D is complete
  Plan plan;            // what ran; row -1 when nothing was launched
  std::string backend;  // "cuda", "cpu"; empty when nothing was launched
  int device = -1;      // ordinal within the backend's kind; -1 when nothing was launched
  int lane = -1;
  PhaseTimes times;  // decode .. total
  StallSample stalls;
};

// Filled by the caller, read by the engine. Everything the pointers name lives until `done` ran.
struct GemmRequest {
  std::string id;         // for logs; the engine never interprets it
  GemmProblem problem;    // ValidateProblem() is OK
  HostOperands operands;  // `d` is ignored: allocate_result gives it
  PlanConstraints constraints;
  int64_t bytes = 0;  // operands and result; what the queue's byte limit counts
  SteadyClock::time_point received = SteadyClock::now();
  // max(): none.
  SteadyClock::time_point deadline = SteadyClock::time_point::max();
  Nanoseconds decode{0};

  // Called at most once, just before the product is handed to a lane, so that queued requests hold
  // no result memory. Returns `bytes` writable bytes, or null when there are none.
  std::function<std::byte*(int64_t bytes)> allocate_result;

  // Called exactly once after Engine::Submit returned OK; from any thread, never with an engine
  // lock held, possibly before Submit returns. Must not block.
  std::function<void(GemmResult)> done;
};

}  // namespace gemmd
