// SIGTERM, SIGINT and SIGHUP as numbers to wait for. A SIGHUP that the process was started to
// ignore (nohup) stays ignored.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>

namespace gemmd {

// Takes these signals as long as it lives. One at a time in a process; confined to the thread that
// made it, but for what says otherwise.
//
// A handler that writes to a pipe, and not sigwait with the signals blocked: libraries start
// threads before main() that do not have them blocked, and the kernel may give a signal to any of
// those.
class Signals {
 public:
  enum class Take : uint8_t {
    kAll,
    // Of each the first: a second does what it does without this, and one that the process was
    // started to ignore stays ignored.
    kFirst,
  };
  explicit Signals(Take take);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  static constexpr std::chrono::milliseconds kForever{-1};

  // The signal's number, one by one; 0 when none came within `timeout`, or Wake() was called. May
  // be 0 early, too. From any thread, but one at a time.
  int Wait(std::chrono::milliseconds timeout) const;
  // Ends a Wait(), or the next one. From any thread.
  void Wake() const;

 private:
  std::array<struct sigaction, 3> old_{};
};

}  // namespace gemmd
