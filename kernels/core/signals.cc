#include "kernels/core/signals.h"

#include <cerrno>
#include <cstdlib>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace gemmd {
namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};

struct Pipe {
  int out = -1, in = -1;
};
// A handler can reach nothing but a global. Open from the first Signals to the end of the process:
// a handler may still run in another thread when the signal is no longer taken.
Pipe pipe_of_process;

void Put(char byte) {
  // A full pipe holds thousands of signals that nobody has read yet: one more says nothing new.
  [[maybe_unused]] const ssize_t written = write(pipe_of_process.in, &byte, 1);
}

extern "C" void PutSignal(int number) {
  const int saved_errno = errno;
  Put(static_cast<char>(number));
  errno = saved_errno;
}

// nullopt: nothing is there.
std::optional<char> Get() {
  char byte = 0;
  if (read(pipe_of_process.out, &byte, 1) != 1) return std::nullopt;
  return byte;
}

void Open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
  pipe_of_process = {.out = ends[0], .in = ends[1]};
}

}  // namespace

Signals::Signals(Take take) {
  if (pipe_of_process.out < 0) Open();
  while (Get()) {  // what came to an earlier one
  }
  struct sigaction action {};
  action.sa_handler = PutSignal;
  action.sa_flags = SA_RESTART;
  if (take == Take::kFirst) action.sa_flags |= static_cast<int>(SA_RESETHAND);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &old_[i]);
    const bool keep_ignored = take == Take::kFirst || kSignals[i] == SIGHUP;
    if (keep_ignored && old_[i].sa_handler == SIG_IGN) {
      sigaction(kSignals[i], &old_[i], nullptr);
    }
  }
}

Signals::~Signals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
}

int Signals::Wait(std::chrono::milliseconds timeout) const {
  pollfd readable{.fd = pipe_of_process.out, .events = POLLIN, .revents = 0};
  poll(&readable, 1, static_cast<int>(timeout.count()));
  return Get().value_or(0);
}

void Signals::Wake() const { Put(0); }

}  // namespace gemmd
