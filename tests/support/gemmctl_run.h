// gemmctl as a shell runs it. GEMMCTL_BINARY, its path, comes from the test's build.
#pragma once

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gemmd {

// One run of gemmctl, with its standard output and error in one pipe.
class Gemmctl {
 public:
  // On a terminal it also shows how far it is.
  explicit Gemmctl(std::vector<std::string> args, bool terminal = false) {
    args.insert(args.begin(), GEMMCTL_BINARY);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    int ends[2];
    if (terminal) {
      ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
      if (ends[0] < 0 || grantpt(ends[0]) != 0 || unlockpt(ends[0]) != 0) std::abort();
      ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
    } else if (pipe2(ends, O_CLOEXEC) != 0) {
      std::abort();
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    EXPECT_EQ(posix_spawn(&pid_, GEMMCTL_BINARY, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    out_ = ends[0];
  }
  ~Gemmctl() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
  }
  Gemmctl(const Gemmctl&) = delete;
  Gemmctl& operator=(const Gemmctl&) = delete;

  // Returns once it has printed `what`, or has ended.
  void ReadUntil(const std::string& what) {
    char part[512];
    while (output_.find(what) == std::string::npos) {
      const ssize_t got = read(out_, part, sizeof(part));
      if (got <= 0) return;
      output_.append(part, static_cast<size_t>(got));
    }
  }
  pid_t pid() const { return pid_; }
  void Signal(int number) const { kill(pid_, number); }
  int ExitCode() {
    ReadUntil("\x01 never said");
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  const std::string& output() const { return output_; }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  std::string output_;
};

}  // namespace gemmd
