// The backends of one engine as a whole: what they can run, and a lane for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "kernels/plan/tuned_planner.h"
#include "server/engine/observer.h"

namespace gemmd {

// A lane and where it is.
struct Seat {
  int backend = -1;
  LaneLease lease;
};

class Fleet {  // Thread-safe. At most 64 backends, which outlive it.
 public:
  explicit Fleet(std::vector<Backend*> backends);

  const Backend& backend(int index) const { return *backends_[index]; }
  // Backends on equal devices have one planner: what is learnt on one of them holds for all.
  TunedPlanner& planner(int index) { return *planners_[index]; }
  const TunedPlanner& planner(int index) const { return *planners_[index]; }
  int lanes() const;
  bool healthy() const;  // false once any backend is not

  void SetReleaseListener(const std::function<void()>& listener);

  // Sets bit i of `runnable` where backend i can run the problem under the constraints. The first
  // backend's reason when none can.
  std::optional<Refusal> CheckRunnable(const GemmProblem& problem,
                                       const PlanConstraints& constraints,
                                       uint64_t* runnable) const;

  // From the healthy backend of `runnable` with the most free lanes that has the memory; round
  // robin among equals. nullopt when none has both now.
  std::optional<Seat> TryAcquire(const GemmProblem& problem, uint64_t runnable);

  // The first backend's plan that meets the constraints, else the first backend's error.
  StatusOr<Plan> PlanFor(const GemmProblem& problem, const PlanConstraints& constraints) const;

 private:
  std::optional<Refusal> CheckRunnable(int index, const GemmProblem& problem,
                                       const PlanConstraints& constraints) const;

  const std::vector<Backend*> backends_;
  const std::vector<std::shared_ptr<TunedPlanner>> planners_;  // of each backend
  std::atomic<uint32_t> first_{0};  // where the round robin starts; any order will do
};

}  // namespace gemmd
