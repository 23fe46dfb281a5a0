// A real server in this process, on a loopback port of its own, and real callers.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include "gemmd/v1/gemm.grpc.pb.h"
#include "gemmd/v1/server.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/backend_factory.h"
#include "server/server.h"
#include "tests/support/manual_backend.h"

namespace gemmd::testing {

// A generous bound for what must happen at once: only a broken server reaches it.
inline constexpr std::chrono::seconds kLongEnough{30};

// What the server has logged; any thread writes.
class LogText {
 public:
  const spdlog::sink_ptr& sink() const { return sink_; }
  std::string str() const {
    sink_->flush();  // takes the sink's lock after every writer whose reply has come
    return text_.str();
  }

 private:
  std::ostringstream text_;
  const spdlog::sink_ptr sink_ = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
};

class ServerFixture : public ::testing::Test {
 protected:
  ServerFixture() {
    config_.listen.port = 0;
    config_.metrics_enabled = false;
    config_.backend.pc_sampling_percent = 0;  // a sampler is read where a test wants it
    config_.backend.choice = BackendChoice::kCpu;
    config_.backend.lanes = 2;
    log_->set_level(spdlog::level::debug);
  }

  void StartOnCpu() {
    config_.backend.self_check = false;  // its own tests run it
    StatusOr<BackendSet> backends = MakeBackends(config_.backend);
    ASSERT_TRUE(backends.ok()) << backends.status().ToString();
    Start(*std::move(backends));
  }

  // Products then run until manual_ says so.
  void StartOnManual(ManualBackendOptions options = {}) { StartOnManuals({std::move(options)}); }
  // On several devices; manual_ is the first.
  void StartOnManuals(std::vector<ManualBackendOptions> options) {
    BackendSet set;
    for (ManualBackendOptions& one : options) {
      auto manual = std::make_unique<ManualBackend>(std::move(one));
      if (set.backends.empty()) manual_ = manual.get();
      set.backends.push_back(std::move(manual));
    }
    set.reason = "test";
    Start(std::move(set));
  }

  // Waits for a state that another thread brings about.
  template <typename Condition>
  static void Until(Condition condition) {
    const auto limit = SteadyClock::now() + kLongEnough;
    while (!condition()) {
      ASSERT_LT(SteadyClock::now(), limit);
      std::this_thread::yield();
    }
  }

  void TearDown() override {
    if (manual_ != nullptr) manual_->CompleteAll();
    if (server_ == nullptr) return;
    server_->StartDrain();
    ASSERT_TRUE(server_->WaitIdle(SteadyClock::now() + kLongEnough));
    EXPECT_EQ(server_->engine().queued_requests(), 0);
    EXPECT_EQ(server_->engine().queued_bytes(), 0);
    EXPECT_EQ(server_->engine().running_requests(), 0);
    server_->Shutdown();
  }

  // A connection of its own, not shared with other channels to the same address.
  std::shared_ptr<grpc::Channel> NewChannel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    return grpc::CreateCustomChannel(server_->grpc_address(), grpc::InsecureChannelCredentials(),
                                     arguments);
  }

  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + kLongEnough);
  }

  grpc::Status Gemm(const v1::GemmRequest& request, v1::GemmResponse* response = nullptr) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::GemmResponse ignored;
    return stub_->Gemm(&context, request, response == nullptr ? &ignored : response);
  }

  grpc::health::v1::HealthCheckResponse::ServingStatus Health(const std::string& service) {
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status = health_->Check(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status();
  }

  Config config_;
  LogText log_text_;
  std::shared_ptr<spdlog::logger> log_ = std::make_shared<spdlog::logger>("test", log_text_.sink());
  ManualBackend* manual_ = nullptr;  // the server's
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GemmService::Stub> stub_;
  std::unique_ptr<v1::ServerService::Stub> info_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;

 private:
  void Start(BackendSet backends) {
    StatusOr<std::unique_ptr<Server>> server =
        Server::Start(config_, std::move(backends), {"1.2.3", "abc", "Test"}, log_);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    channel_ = NewChannel();
    stub_ = v1::GemmService::NewStub(channel_);
    info_ = v1::ServerService::NewStub(channel_);
    health_ = grpc::health::v1::Health::NewStub(channel_);
  }
};

// D (m, n) = A (m, k) B (k, n) in f32, packed, of elements that are all 1.
inline v1::GemmRequest OnesRequest(int64_t m, int64_t n, int64_t k) {
  const auto ones = [](int64_t count) {
    const std::vector<float> values(static_cast<size_t>(count), 1.0F);
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  v1::GemmRequest request;
  request.mutable_problem()->set_m(m);
  request.mutable_problem()->set_n(n);
  request.mutable_problem()->set_k(k);
  request.mutable_problem()->set_type_a(v1::DATA_TYPE_F32);
  request.mutable_a()->set_inline_(ones(m * k));
  request.mutable_b()->set_inline_(ones(k * n));
  return request;
}

}  // namespace gemmd::testing
