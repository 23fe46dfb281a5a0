#include "server/signals.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace gemmd {
namespace {

// A handler can reach nothing but a global. Set once, before the handler is installed.
int signal_pipe_in = -1;

extern "C" void WriteSignal(int number) {
  const int saved_errno = errno;
  const char byte = static_cast<char>(number);
  // A full pipe holds thousands of signals that nobody has read yet: one more says nothing new.
  [[maybe_unused]] const ssize_t written = write(signal_pipe_in, &byte, 1);
  errno = saved_errno;
}

}  // namespace

Signals::Signals() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
  pipe_out_ = ends[0];
  signal_pipe_in = ends[1];
  struct sigaction action {};
  action.sa_handler = WriteSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int Signals::Wait(std::chrono::milliseconds timeout) const {
  pollfd readable{.fd = pipe_out_, .events = POLLIN, .revents = 0};
  poll(&readable, 1, static_cast<int>(timeout.count()));
  char number = 0;
  return read(pipe_out_, &number, 1) == 1 ? number : 0;
}

}  // namespace gemmd
