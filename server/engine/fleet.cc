#include "server/engine/fleet.h"

#include <algorithm>
#include <utility>

namespace gemmd {
namespace {

// Whether times measured on one hold on the other.
bool AreEqual(const DeviceTraits& x, const DeviceTraits& y) {
  return x.kind == y.kind && x.name == y.name && x.sm_count == y.sm_count;
}

std::vector<std::shared_ptr<TunedPlanner>> PlannersOf(const std::vector<Backend*>& backends) {
  std::vector<std::shared_ptr<TunedPlanner>> planners;
  for (const Backend* backend : backends) {
    const DeviceTraits& traits = backend->traits();
    const auto equal = std::find_if(planners.begin(), planners.end(), [&](const auto& planner) {
      return AreEqual(planner->model().traits(), traits);
    });
    planners.push_back(equal == planners.end() ? std::make_shared<TunedPlanner>(traits) : *equal);
  }
  return planners;
}

}  // namespace

Fleet::Fleet(std::vector<Backend*> backends)
    : backends_(std::move(backends)), planners_(PlannersOf(backends_)) {}

int Fleet::lanes() const {
  int lanes = 0;
  for (const Backend* backend : backends_) lanes += backend->usage().lanes;
  return lanes;
}

bool Fleet::healthy() const {
  return std::all_of(backends_.begin(), backends_.end(),
                     [](const Backend* backend) { return backend->healthy(); });
}

void Fleet::SetReleaseListener(const std::function<void()>& listener) {
  for (Backend* backend : backends_) backend->SetReleaseListener(listener);
}

std::optional<Refusal> Fleet::CheckRunnable(int index, const GemmProblem& problem,
                                            const PlanConstraints& constraints) const {
  Status status = CheckSupported(problem, backends_[index]->traits());
  if (status.ok() && constraints.any()) {
    status = planners_[index]->PlanFor(problem, constraints).status();
  }
  if (!status.ok()) return Refusal{RejectReason::kUnsupported, std::move(status)};
  status = backends_[index]->CheckFits(problem);
  if (!status.ok()) return Refusal{RejectReason::kMemory, std::move(status)};
  return std::nullopt;
}

std::optional<Refusal> Fleet::CheckRunnable(const GemmProblem& problem,
                                            const PlanConstraints& constraints,
                                            uint64_t* runnable) const {
  *runnable = 0;
  std::optional<Refusal> first;
  for (int i = 0; i < static_cast<int>(backends_.size()); ++i) {
    std::optional<Refusal> refusal = CheckRunnable(i, problem, constraints);
    if (!refusal) {
      *runnable |= uint64_t{1} << i;
    } else if (!first) {
      first = std::move(refusal);
    }
  }
  if (*runnable != 0) return std::nullopt;
  return first;
}

std::optional<Seat> Fleet::TryAcquire(const GemmProblem& problem, uint64_t runnable) {
  struct Choice {
    int free_lanes;
    int backend;
  };
  const int count = static_cast<int>(backends_.size());
  const int first = static_cast<int>(first_.fetch_add(1, std::memory_order_relaxed) %
                                     static_cast<uint32_t>(count));
  std::vector<Choice> choices;
  for (int i = 0; i < count; ++i) {
    const int index = (first + i) % count;
    if ((runnable >> index & 1) == 0 || !backends_[index]->healthy()) continue;
    const BackendUsage usage = backends_[index]->usage();
    choices.push_back({usage.lanes - usage.lanes_in_use, index});
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.free_lanes > b.free_lanes; });
  for (const Choice& choice : choices) {
    std::optional<LaneLease> lease = backends_[choice.backend]->TryAcquireLane(problem);
    if (lease) return Seat{choice.backend, *std::move(lease)};
  }
  return std::nullopt;
}

StatusOr<Plan> Fleet::PlanFor(const GemmProblem& problem,
                              const PlanConstraints& constraints) const {
  StatusOr<Plan> first = planners_.front()->PlanFor(problem, constraints);
  for (size_t i = 1; i < planners_.size() && !first.ok(); ++i) {
    StatusOr<Plan> other = planners_[i]->PlanFor(problem, constraints);
    if (other.ok()) return other;
  }
  return first;
}

}  // namespace gemmd
