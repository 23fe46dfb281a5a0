#include "server/rpc/listener.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gemmd {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// What the listener says about descriptors.
class Sink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::atomic<int> turned_away{0}, taken_again{0};

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string text(message.payload.data(), message.payload.size());
    if (text.find("turned away") != std::string::npos) ++turned_away;
    if (text.find("taken again") != std::string::npos) ++taken_again;
  }
  void flush_() override {}
};

// A caller's end of a connection.
class Caller {
 public:
  explicit Caller(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(port));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
    timeval limit{.tv_sec = 30, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Caller() { close(fd_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  bool connected() const { return connected_; }
  // One byte, or '\0' when the other end closed the connection.
  char Read() const {
    char byte = 0;
    return recv(fd_, &byte, 1, 0) == 1 ? byte : '\0';
  }

 private:
  const int fd_;
  bool connected_ = false;
};

class ListenerTest : public ::testing::Test {
 protected:
  void Start(int fd_limit) {
    auto bound = Listener::Bind("127.0.0.1", 0, &log_);
    ASSERT_TRUE(bound.ok()) << bound.status().ToString();
    listener_ = *std::move(bound);
    // Greets, so that a caller knows that it was taken.
    listener_->Start(fd_limit, [this](int fd) {
      EXPECT_EQ(send(fd, "+", 1, MSG_NOSIGNAL), 1);
      MutexLock lock(mu_);
      taken_.push_back(fd);
    });
  }
  void TearDown() override {
    if (listener_ != nullptr) listener_->Stop();
    CloseTaken();
  }
  void CloseTaken() {
    MutexLock lock(mu_);
    for (const int fd : taken_) close(fd);
    taken_.clear();
  }
  std::unique_ptr<Caller> Call() { return std::make_unique<Caller>(listener_->port()); }

  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  spdlog::logger log_{"test", sink_};
  std::unique_ptr<Listener> listener_;
  Mutex mu_;
  std::vector<int> taken_ GUARDED_BY(mu_);
};

TEST_F(ListenerTest, TurnsAwayWhatWouldTakeTheLastDescriptorsAndTakesConnectionsAgain) {
  const int first_free = dup(0);
  close(first_free);
  const int fd_limit = first_free + 60;
  Start(fd_limit);
  std::vector<std::unique_ptr<Caller>> callers;
  int taken = 0, turned_away = 0;
  for (int i = 0; i < 50; ++i) {
    callers.push_back(Call());
    ++(callers.back()->Read() == '+' ? taken : turned_away);
  }
  EXPECT_GT(taken, 5);
  EXPECT_GT(turned_away, 5);
  {
    MutexLock lock(mu_);
    for (const int fd : taken_) EXPECT_LT(fd, fd_limit);
  }
  callers.clear();
  CloseTaken();
  EXPECT_EQ(Call()->Read(), '+');
  listener_->Stop();
  EXPECT_EQ(sink_->turned_away, 1);  // once, not for each
  EXPECT_EQ(sink_->taken_again, 1);
}

TEST_F(ListenerTest, SurvivesTheExhaustionOfDescriptors) {
#ifdef __SANITIZE_ADDRESS__
  // Before it looks at an object, UBSan opens a pipe to see whether the memory is there.
  GTEST_SKIP() << "the undefined-behaviour sanitizer needs descriptors of its own";
#endif
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  Start(1 << 20);
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 8; ++i) {
    callers.push_back(Call());
    EXPECT_EQ(callers.back()->Read(), '+');
  }
  // Sockets first, so that this side needs no descriptor once there is none.
  const int waiting = socket(AF_INET, SOCK_STREAM, 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(listener_->port()));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(waiting, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  // Not answered while there is no descriptor: the listener keeps asking, it does not give up.
  const auto limit = Clock::now() + std::chrono::seconds(30);
  while (sink_->turned_away == 0 && Clock::now() < limit) std::this_thread::yield();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(sink_->turned_away, 1);
  EXPECT_EQ(Call()->Read(), '+');
  close(waiting);
}

TEST_F(ListenerTest, EndsItsConnectionsAndRefusesNewOnes) {
  Start(1 << 20);
  const auto caller = Call();
  EXPECT_EQ(caller->Read(), '+');
  EXPECT_EQ(listener_->open_connections(), 1);
  listener_->Stop();
  EXPECT_FALSE(Call()->connected());
  EXPECT_EQ(listener_->EndConnections(), 1);
  EXPECT_EQ(caller->Read(), '\0');
}

TEST_F(ListenerTest, TakenPortAndUnknownHostAreNamed) {
  Start(1 << 20);
  const auto second = Listener::Bind("127.0.0.1", listener_->port(), &log_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status().message(),
              HasSubstr("127.0.0.1:" + std::to_string(listener_->port())));
  const auto unknown = Listener::Bind("no-such-host.invalid", 0, &log_);
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.status().message(), HasSubstr("no-such-host.invalid:0"));
}

}  // namespace
}  // namespace gemmd
