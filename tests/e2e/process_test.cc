// The gemmd program as a supervisor sees it: a process, its signals, its exit code, its output.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/async_call.h"
#include "tests/e2e/server_fixture.h"

namespace gemmd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// One run of gemmd with its output in a file. Killed, if it still runs, when destroyed.
class Process {
 public:
  explicit Process(std::vector<std::string> args)
      : base_(::testing::TempDir() + "gemmd_" + std::to_string(getpid()) + "_" +
              std::to_string(next_++)) {
    args.insert(args.begin(), GEMMD_BINARY);
    args.push_back("--port-file=" + port_file());
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, output_file().c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
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

  // Its exit code; -1 when a signal ended it or it did not end in time.
  int Wait() {
    const auto limit = std::chrono::steady_clock::now() + kLongEnough;
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

std::vector<std::string> Args(std::vector<std::string> more = {}) {
  std::vector<std::string> args = {"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--backend=cpu",
                                   "--lanes=1", "--cpu-threads=1"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

class ProcessTest : public ::testing::Test {
 protected:
  static std::chrono::system_clock::time_point Deadline() {
    return std::chrono::system_clock::now() + kLongEnough;
  }
  // Null when it does not come to serve.
  static std::unique_ptr<v1::GemmService::Stub> Connect(const Process& process) {
    const std::string address = process.Address("grpc");
    if (address.empty()) return nullptr;
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    return v1::GemmService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }
  // Tens of milliseconds on one core.
  static v1::GemmRequest LongRequest() { return OnesRequest(1024, 1024, 1024); }
};

TEST_F(ProcessTest, SigtermLetsCallsFinishAndExitsZero) {
  Process process(Args({"--log-level=debug"}));
  const auto stub = Connect(process);
  ASSERT_NE(stub, nullptr) << process.output();
  std::vector<std::unique_ptr<AsyncCall>> calls;
  for (int i = 0; i < 4; ++i) {
    calls.push_back(std::make_unique<AsyncCall>(stub.get(), LongRequest(), Deadline()));
  }
  ASSERT_TRUE(process.WaitForOutput("id="));  // the first has ended, the others run or wait
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0) << process.output();
  for (const auto& call : calls) {
    const grpc::Status status = call->Wait();
    // One that had not arrived yet is refused, never lost half-way.
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE)
        << status.error_message();
  }
  EXPECT_TRUE(calls.front()->Wait().ok());
  EXPECT_THAT(process.output(), AllOf(HasSubstr("SIGTERM: draining"), HasSubstr("drained")));
}

TEST_F(ProcessTest, SecondSignalCuts) {
  Process process(Args());
  const auto stub = Connect(process);
  ASSERT_NE(stub, nullptr) << process.output();
  std::vector<std::unique_ptr<AsyncCall>> calls;
  for (int i = 0; i < 20; ++i) {
    calls.push_back(std::make_unique<AsyncCall>(stub.get(), LongRequest(), Deadline()));
  }
  calls.front()->Wait();  // so that the server has work when the signals come
  process.Signal(SIGTERM);
  ASSERT_TRUE(process.WaitForOutput("draining"));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 1) << process.output();
  EXPECT_THAT(process.output(), HasSubstr("second signal"));
}

TEST_F(ProcessTest, DrainTimeoutCuts) {
  Process process(Args({"--drain-timeout=1ms"}));
  const auto stub = Connect(process);
  ASSERT_NE(stub, nullptr) << process.output();
  std::vector<std::unique_ptr<AsyncCall>> calls;
  for (int i = 0; i < 20; ++i) {
    calls.push_back(std::make_unique<AsyncCall>(stub.get(), LongRequest(), Deadline()));
  }
  calls.front()->Wait();
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 1) << process.output();
  EXPECT_THAT(process.output(), AllOf(HasSubstr("SIGINT"), HasSubstr("drain-timeout=1ms")));
}

TEST_F(ProcessTest, IdleServerEndsAtOnceAndLogsJsonLines) {
  Process process(Args({"--log-format=json"}));
  const std::string grpc = process.Address("grpc");
  ASSERT_NE(grpc, "") << process.output();
  EXPECT_EQ(ReadFile(process.port_file()),
            "grpc " + grpc + "\nmetrics " + process.Address("metrics") + "\n");
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  std::istringstream lines(process.output());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_THAT(line, AllOf(::testing::StartsWith("{\"time\":\""), ::testing::EndsWith("\"}"),
                            HasSubstr("\"level\":\""), HasSubstr("\"message\":\"")));
  }
  EXPECT_GE(count, 3);
  EXPECT_THAT(process.output(), HasSubstr("\\\""));  // the device's name, quoted in its line
}

TEST_F(ProcessTest, AddressBeyondLoopbackNeedsAllowRemote) {
  Process process({"--listen=0.0.0.0:0", "--metrics=off", "--backend=cpu"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.output(), AllOf(HasSubstr("0.0.0.0:0"), HasSubstr("--allow-remote")));
}

TEST_F(ProcessTest, TakenPortsEndTheStartWithTheAddress) {
  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(taken, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&name), size), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));

  Process grpc({"--listen=" + address, "--metrics=off", "--backend=cpu"});
  EXPECT_EQ(grpc.Wait(), 1);
  EXPECT_THAT(grpc.output(), AllOf(HasSubstr("cannot listen on"), HasSubstr(address)));

  Process metrics({"--listen=127.0.0.1:0", "--metrics=" + address, "--backend=cpu"});
  EXPECT_EQ(metrics.Wait(), 1);
  EXPECT_THAT(metrics.output(), AllOf(HasSubstr("metrics="), HasSubstr(address)));
  close(taken);
}

TEST_F(ProcessTest, BadSettingEndsTheStartWithItsName) {
  Process process({"--lanes=99"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.output(), AllOf(HasSubstr("lanes=99"), HasSubstr("1 to 64")));
}

}  // namespace
}  // namespace gemmd::testing
