#include "client/interrupt.h"

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

namespace gemmd::ctl {
namespace {

// A handler can reach nothing but a global. Set before the handler is installed.
int signal_pipe_in = -1;

extern "C" void WriteSignal(int number) {
  const int saved_errno = errno;
  const char byte = static_cast<char>(number);
  [[maybe_unused]] const ssize_t written = write(signal_pipe_in, &byte, 1);
  errno = saved_errno;
}

void Install(int number, struct sigaction* old) {
  struct sigaction action {};
  action.sa_handler = WriteSignal;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(number, &action, old);
  if (old->sa_handler == SIG_IGN) sigaction(number, old, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  pipe_out_ = ends[0];
  signal_pipe_in = ends[1];
  Install(SIGINT, &old_int_);
  Install(SIGTERM, &old_term_);
  reader_ = std::thread([this] {
    char number = 0;
    while (read(pipe_out_, &number, 1) < 0 && errno == EINTR) {
    }
    if (number == 0) return;  // the destructor's
    signal_ = number;
    stop_.request_stop();
  });
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  const char end = 0;
  [[maybe_unused]] const ssize_t written = write(signal_pipe_in, &end, 1);
  reader_.join();
  close(pipe_out_);
  close(signal_pipe_in);
}

}  // namespace gemmd::ctl
