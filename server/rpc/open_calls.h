// Counts calls that are open, so that a drain can wait for them.
#pragma once

#include "kernels/core/mutex.h"
#include "server/engine/request.h"

namespace gemmd {

class OpenCalls {  // Thread-safe. Outlives the calls.
 public:
  void Started() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    ++calls_;
  }
  void Ended() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    if (--calls_ == 0) idle_.NotifyAll();
  }

  // Waits until none is open; false when `deadline` passed first.
  bool WaitIdle(SteadyClock::time_point deadline) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    while (calls_ > 0) {
      if (!idle_.WaitUntil(mu_, deadline)) return calls_ == 0;
    }
    return true;
  }
  int count() const EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return calls_;
  }

 private:
  mutable Mutex mu_;
  CondVar idle_;
  int calls_ GUARDED_BY(mu_) = 0;
};

}  // namespace gemmd
