// The signals that end a server.
#pragma once

#include <chrono>

namespace gemmd {

// SIGTERM and SIGINT, taken one by one; SIGPIPE is ignored, so that a caller that vanishes is an
// error code. One a process. Confined to the thread that made it.
//
// A handler that writes to a pipe, and not sigwait with the signals blocked: libraries start
// threads before main() that do not have them blocked, and the kernel may give a signal to any of
// those.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The signal's number; 0 when none came within `timeout`.
  int Wait(std::chrono::milliseconds timeout) const;

 private:
  int pipe_out_ = -1;  // open as long as the process: the handler has the other end
};

}  // namespace gemmd
