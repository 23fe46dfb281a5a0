// One run of the gemmd program, as a supervisor starts it.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/server_fixture.h"

namespace gemmd::testing {

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Where the output of a run goes: a file, or descriptors 0 to 2 are closed.
enum class Output : uint8_t { kFile, kClosed };

// One run of gemmd with its output in a file. Killed, if it still runs, when destroyed.
class Process {
 public:
  explicit Process(std::vector<std::string> args, Output output = Output::kFile)
      : base_(::testing::TempDir() + "gemmd_" + std::to_string(getpid()) + "_" +
              std::to_string(next_++)) {
    args.insert(args.begin(), GEMMD_BINARY);
    args.push_back("--port-file=" + port_file());
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (output == Output::kFile) {
      posix_spawn_file_actions_addopen(&actions, 1, output_file().c_str(),
                                       O_WRONLY | O_CREAT | O_TRUNC, 0600);
      posix_spawn_file_actions_adddup2(&actions, 1, 2);
    } else {
      for (int fd = 0; fd <= 2; ++fd) posix_spawn_file_actions_addclose(&actions, fd);
    }
    const int error = posix_spawn(&pid_, GEMMD_BINARY, &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      pid_ = -1;
      ADD_FAILURE() << "cannot start " << GEMMD_BINARY << ": error " << error;
    }
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    std::remove(port_file().c_str());
    std::remove(output_file().c_str());
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int number) const { kill(pid_, number); }

  // Its exit code; -1 when a signal ended it or it did not end within `time`.
  int Wait(std::chrono::milliseconds time = kLongEnough) {
    const auto limit = std::chrono::steady_clock::now() + time;
    int status = 0;
    while (pid_ > 0 && std::chrono::steady_clock::now() < limit) {
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
      std::this_thread::sleep_for(kPoll);
    }
    return -1;
  }

  // "127.0.0.1:PORT" of `service` once it serves; empty when it ended or took too long.
  std::string Address(const std::string& service) const {
    const auto limit = std::chrono::steady_clock::now() + kLongEnough;
    while (std::chrono::steady_clock::now() < limit) {
      std::ifstream file(port_file());
      for (std::string name, address; file >> name >> address;) {
        if (name == service) return address;
      }
      std::this_thread::sleep_for(kPoll);
    }
    return "";
  }

  std::string output() const { return ReadFile(output_file()); }
  std::string port_file() const { return base_ + ".ports"; }

  // Waits until the output holds `text`.
  bool WaitForOutput(const std::string& text) const {
    const auto limit = std::chrono::steady_clock::now() + kLongEnough;
    while (std::chrono::steady_clock::now() < limit) {
      if (output().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(kPoll);
    }
    return false;
  }

 private:
  // Another process gives no signal that could be waited for; this is how often it is looked at.
  static constexpr std::chrono::milliseconds kPoll{5};
  static inline int next_ = 0;

  std::string output_file() const { return base_ + ".log"; }

  const std::string base_;
  pid_t pid_ = -1;
};

// Of a server on the CPU, on free ports.
inline std::vector<std::string> Args(std::vector<std::string> more = {}) {
  std::vector<std::string> args = {"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--backend=cpu",
                                   "--lanes=1", "--cpu-threads=1"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

}  // namespace gemmd::testing
