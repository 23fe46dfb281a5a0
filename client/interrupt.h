// Ctrl-C as a request to stop.
#pragma once

#include <atomic>
#include <stop_token>
#include <thread>

#include "kernels/core/signals.h"

namespace gemmd::ctl {

// While one lives, the first SIGINT or SIGTERM requests a stop and a second of its kind ends the
// process, as without it. A signal that the process was started to ignore stays ignored. One at a
// time; confined to the thread that made it, but for its token.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return stop_.get_token(); }
  int signal() const { return signal_; }  // 0: none came

 private:
  const Signals signals_{Signals::Take::kFirst};
  std::stop_source stop_;
  std::atomic<int> signal_{0};
  std::atomic<bool> over_{false};
  std::thread reader_;
};

}  // namespace gemmd::ctl
