// What the engine is asked for, as tuning needs to know it: which problems come most often, and
// whether a product is under way now.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "kernels/core/mutex.h"
#include "server/engine/observer.h"

namespace gemmd {

// A total order in which two problems are equal when all that a request can say of them is.
struct ProblemLess {
  bool operator()(const GemmProblem& x, const GemmProblem& y) const;
};

class Traffic : public EngineObserver {  // Thread-safe.
 public:
  // Distinct problems that are kept. When there are more, the half that was served less goes.
  static constexpr int kMaxProblems = 1000;

  void Admitted(const GemmRequest& request) override;
  void Rejected(RejectReason) override {}
  void Completed(const GemmRequest& request, const GemmResult& result) override;

  // Problems of products that ended well and left the plan to the server, most often served first.
  // Of alpha and beta only says whether they are 0: they are 0 or 1.
  std::vector<GemmProblem> MostServed() const EXCLUDES(mu_);

  // Whether every admitted product has ended.
  bool idle() const { return unfinished_.load(std::memory_order_acquire) == 0; }
  // Called when idle() may have changed, from any thread; must not block, nor call back here. No
  // call runs any more once SetListener has replaced it.
  void SetListener(std::function<void()> listener) EXCLUDES(listener_mu_);

 private:
  void Record(const GemmProblem& problem) EXCLUDES(mu_);
  void DropRarerHalf() REQUIRES(mu_);
  void Notify() EXCLUDES(listener_mu_);

  std::atomic<int64_t> unfinished_{0};
  mutable Mutex mu_;
  std::map<GemmProblem, int64_t, ProblemLess> served_ GUARDED_BY(mu_);  // how often
  Mutex listener_mu_;
  std::function<void()> listener_ GUARDED_BY(listener_mu_);
};

}  // namespace gemmd
