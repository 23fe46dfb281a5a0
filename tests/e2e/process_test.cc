// The gemmd program as a supervisor sees it: a process, its signals, its exit code, its output.
#include "tests/e2e/process.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/e2e/async_call.h"
#include "tests/e2e/server_fixture.h"
#include "tests/e2e/unread_call.h"

namespace gemmd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What a drained server may take to end. Its libraries would take 2 to 10 s.
constexpr std::chrono::milliseconds kSoon{1500};

// In the line that a server logs at level debug before it answers with a product.
constexpr char kProduct[] = " code=OK ";

int CountOf(const std::string& part, const std::string& text) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
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
  // Minutes on one core, in a message of 800 kB: the products of a batch that share their operands.
  static v1::GemmRequest EndlessRequest() {
    v1::GemmRequest request = OnesRequest(1, 1, 100000);
    request.mutable_problem()->set_batch(10000000);
    request.mutable_a()->set_batch_stride(0);
    request.mutable_b()->set_batch_stride(0);
    return request;
  }
  // False when nothing runs before Deadline().
  static bool WaitUntilRunning(const Process& process) {
    const auto stub = v1::ServerService::NewStub(
        grpc::CreateChannel(process.Address("grpc"), grpc::InsecureChannelCredentials()));
    for (const auto deadline = Deadline(); std::chrono::system_clock::now() < deadline;) {
      grpc::ClientContext context;
      v1::Statistics statistics;
      if (stub->GetStatistics(&context, {}, &statistics).ok() && statistics.running() > 0) {
        return true;
      }
    }
    return false;
  }
};

TEST_F(ProcessTest, SigtermLetsCallsFinishAndExitsZero) {
  Process process(Args({"--log-level=debug"}));
  const auto stub = Connect(process);
  ASSERT_NE(stub, nullptr) << process.output();
  std::vector<std::unique_ptr<AsyncCall>> calls;
  for (int i = 0; i < 4; ++i) {
    calls.push_back(std::make_unique<AsyncCall>(stub.get(), LongRequest(), Deadline()));
  }
  // One has ended; of the others, in whatever order their messages came, some run or wait.
  ASSERT_TRUE(process.WaitForOutput(kProduct));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0) << process.output();
  int answered = 0;
  for (const auto& call : calls) {
    const grpc::Status status = call->Wait();
    if (status.ok()) ++answered;
    // One that had not arrived yet is refused, never lost half-way.
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE)
        << status.error_message();
  }
  EXPECT_EQ(answered, CountOf(kProduct, process.output())) << process.output();
  EXPECT_THAT(process.output(), AllOf(HasSubstr("SIGTERM: draining"), HasSubstr("drained")));
}

TEST_F(ProcessTest, SecondSignalCuts) {
  Process process(Args());
  const auto stub = Connect(process);
  ASSERT_NE(stub, nullptr) << process.output();
  const AsyncCall call(stub.get(), EndlessRequest(), Deadline());
  ASSERT_TRUE(WaitUntilRunning(process)) << process.output();
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
  const AsyncCall call(stub.get(), EndlessRequest(), Deadline());
  ASSERT_TRUE(WaitUntilRunning(process)) << process.output();
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
  EXPECT_EQ(process.Wait(kSoon), 0);
  EXPECT_NE(access(process.port_file().c_str(), F_OK), 0) << "it names a server that is gone";
  std::istringstream lines(process.output());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_THAT(line, AllOf(::testing::StartsWith("{\"time\":\""), ::testing::EndsWith("\"}"),
                            HasSubstr("\"level\":\""), HasSubstr("\"message\":\"")));
  }
  EXPECT_GE(count, 3);
  EXPECT_THAT(process.output(), HasSubstr("\\\""));  // the device's name, quoted in its line
}

// A message of that size stays with gRPC longest: its own thread polls for the rest of it.
TEST_F(ProcessTest, ServerEndsSoonAfterALargeProduct) {
  Process process(Args());
  auto stub = Connect(process);
  ASSERT_NE(stub, nullptr) << process.output();
  const v1::GemmRequest request = OnesRequest(2700, 2700, 2700);
  EXPECT_TRUE(AsyncCall(stub.get(), request, Deadline()).Wait().ok());
  stub = nullptr;  // ends the connection
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(kSoon), 0) << process.output();
  EXPECT_THAT(process.output(), HasSubstr("drained"));
}

TEST_F(ProcessTest, ReplyThatNobodyReadsDoesNotMakeADrainFail) {
  Process process(Args({"--drain-timeout=500ms", "--log-level=debug"}));
  const std::string address = process.Address("grpc");
  ASSERT_NE(address, "") << process.output();
  const UnreadCall unread(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()),
                          OnesRequest(2048, 2048, 0));
  ASSERT_TRUE(process.WaitForOutput(kProduct));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0) << process.output();
  EXPECT_THAT(process.output(), AllOf(HasSubstr("cut 1 replies with 16777216 bytes"),
                                      HasSubstr("did not take"), HasSubstr("drained")));
}

TEST_F(ProcessTest, ServesAndDrainsWithoutStandardStreams) {
  Process process(Args({"--log-level=debug"}), Output::kClosed);
  const auto stub = Connect(process);
  ASSERT_NE(stub, nullptr);
  EXPECT_TRUE(AsyncCall(stub.get(), OnesRequest(2, 2, 2), Deadline()).Wait().ok());
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
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

TEST_F(ProcessTest, DrainNamesTheTuneThatItEnds) {
  Process process(Args());
  const std::string address = process.Address("grpc");
  ASSERT_NE(address, "") << process.output();
  const auto stub =
      v1::ServerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  const v1::Problem problem = LongRequest().problem();
  v1::TuneRequest request;
  for (int i = 0; i < 1000; ++i) *request.add_problems() = problem;
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  const auto reader = stub->Tune(&context, request);
  v1::TuneProgress progress;
  ASSERT_TRUE(reader->Read(&progress)) << process.output();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0) << process.output();
  while (reader->Read(&progress)) {
  }
  EXPECT_THAT(reader->Finish().error_message(), HasSubstr("the server is draining; what was"));
  EXPECT_THAT(process.output(), AllOf(HasSubstr("queued requests, a tune of 1000 problems, for"),
                                      HasSubstr("drained")));
}

TEST_F(ProcessTest, TuningFileHasOneServerAtATimeAndAKilledOneLeavesNoLock) {
  std::string folder = ::testing::TempDir() + "process_test.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/tuning.json";
  {
    Process first(Args({"--tuning-file=" + path}));
    ASSERT_NE(first.Address("grpc"), "") << first.output();
    Process second(Args({"--tuning-file=" + path}));
    EXPECT_EQ(second.Wait(), 1);
    EXPECT_THAT(second.output(),
                HasSubstr("tuning-file=" + path + " is in use by another process"));
    first.Signal(SIGKILL);
    EXPECT_EQ(first.Wait(), -1);
    Process third(Args({"--tuning-file=" + path}));
    EXPECT_NE(third.Address("grpc"), "") << third.output();
  }
  std::filesystem::remove_all(folder);
}

// A connection stands, for the kernel makes it, and nobody answers.
TEST_F(ProcessTest, VerbsOfGemmctlEndWithinTheirTimeoutWhenTheServerIsStopped) {
  const Process process(Args());
  const std::string address = process.Address("grpc");
  ASSERT_NE(address, "") << process.output();
  process.Signal(SIGSTOP);
  for (const char* verb : {"info", "kernels", "stats", "plan 1 1 1", "health", "health --watch",
                           "check", "tune --m 1:100:+1 --n 1 --k 1", "study --shape 1x1x1"}) {
    SCOPED_TRACE(verb);
    const auto start = std::chrono::steady_clock::now();
    FILE* const run = popen((std::string(GEMMCTL_BINARY) + " --server " + address +
                             " --timeout 0.2 --connect-timeout 60 " + verb + " 2>&1")
                                .c_str(),
                            "r");
    ASSERT_NE(run, nullptr);
    std::string said;
    for (char line[512]; std::fgets(line, sizeof line, run) != nullptr;) said += line;
    EXPECT_EQ(WEXITSTATUS(pclose(run)), 2);
    EXPECT_THAT(said, HasSubstr("cannot connect to " + address + " within 200 ms"));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

TEST_F(ProcessTest, ACheckEndsWithItsServer) {
  const Process process(Args());
  const std::string address = process.Address("grpc");
  ASSERT_NE(address, "") << process.output();
  FILE* const run = popen((std::string(GEMMCTL_BINARY) + " --server " + address +
                           " check --count 1000000000 --seed 1 --max-extent 8 2>&1")
                              .c_str(),
                          "r");
  ASSERT_NE(run, nullptr);
  const auto stub =
      v1::ServerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  v1::Statistics statistics;
  while (statistics.requests_completed() < 3) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    ASSERT_TRUE(stub->GetStatistics(&context, {}, &statistics).ok());
  }
  process.Signal(SIGKILL);
  std::string said;
  for (char line[512]; std::fgets(line, sizeof line, run) != nullptr;) said += line;
  EXPECT_EQ(WEXITSTATUS(pclose(run)), 3);
  EXPECT_THAT(said, AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("the server does not answer; "),
                          HasSubstr(" of 1000000000 products were sent")));
}

TEST_F(ProcessTest, BadSettingEndsTheStartWithItsName) {
  Process process({"--lanes=99"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.output(), AllOf(HasSubstr("lanes=99"), HasSubstr("1 to 64")));
}

}  // namespace
}  // namespace gemmd::testing
