// Admission, a bounded queue, deadlines, and dispatch onto lanes.
//
// A request is admitted or refused at once. Admitted requests wait in arrival order; dispatcher
// threads take the oldest whenever a lane with enough memory is free, plan it, and hand it to the
// lane. Expired or cancelled requests leave the queue when that happens, not when they reach its
// head. What runs for a caller who gave up is stopped where its lane can do that (Lane::Submit).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/status.h"
#include "server/engine/observer.h"
#include "server/engine/request.h"
#include "server/engine/request_queue.h"

namespace gemmd {

class TunedPlanner;

struct EngineOptions {
  int max_queued_requests = 1024;
  int64_t max_queued_bytes = int64_t{2} << 30;  // sum of GemmRequest::bytes over the queue
  int dispatchers = 0;  // threads; 0: one a lane, at most the cores of this machine
};

class Engine {  // Thread-safe.
 public:
  // `backends` and `observer` outlive the engine. 1 to 64 backends, all of one kind; nobody else
  // leases their lanes from now on. `observer` may be null.
  Engine(EngineOptions options, std::vector<Backend*> backends, EngineObserver* observer);
  // Cuts what still waits or runs, as CutQueue() does, and waits for its end. Not from a `done`.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // On OK, `request->done` runs exactly once and the id can be cancelled. On error it never runs:
  //   RESOURCE_EXHAUSTED  queue full by count or bytes (retry_after set), or memory that this
  //                       server never has (not set)
  //   UNIMPLEMENTED       types or mode that no kernel of the device takes
  //   INVALID_ARGUMENT    plan constraints that cannot be met
  //   DEADLINE_EXCEEDED   already past
  //   UNAVAILABLE         draining, or the device is lost (retry_after set)
  // An empty product (m, n or batch of 0) completes here, without a lane.
  StatusOr<RequestId> Submit(std::unique_ptr<GemmRequest> request);

  // Takes a waiting request out of the queue; asks the lane of a running one to stop. Its `done`
  // gets CANCELLED, or DEADLINE_EXCEEDED when its deadline has passed; a product that ends in spite
  // of that keeps its result. Nothing happens when it has ended. Deadlines themselves stop nothing
  // that runs: whoever waits for it calls this when he no longer does.
  void Cancel(RequestId id);

  // Refuses new requests from now on.
  void StartDrain();
  // Waits until every admitted request's `done` has returned; false when `deadline` passed first.
  bool WaitIdle(SteadyClock::time_point deadline);
  // Fails what still waits with UNAVAILABLE, and asks the lanes to stop what runs, which gets the
  // same when it does. While draining, nothing waits again after it.
  void CutQueue();

  // The plan a request would get, without running it.
  StatusOr<Plan> Explain(const GemmProblem& problem, const PlanConstraints& constraints) const;

  // Of the backend at that place in `backends`; equal devices have the same one. What it learns,
  // requests are planned with.
  TunedPlanner& planner(int backend);
  const TunedPlanner& planner(int backend) const;

  const EngineOptions& options() const { return options_; }  // as they were given
  bool healthy() const;                                      // false once any backend is not
  bool draining() const;
  int queued_requests() const;
  int64_t queued_bytes() const;
  int running_requests() const;  // those that have a lane; never more than there are lanes

 private:
  class Impl;
  const EngineOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gemmd
