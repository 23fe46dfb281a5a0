// A ServerService that measures nothing: it answers what a test wants.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "gemmd/v1/server.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/core/mutex.h"

namespace gemmd {

class FakeTuner final : public v1::ServerService::Service {
 public:
  grpc::Status Tune(grpc::ServerContext* context, const v1::TuneRequest* request,
                    grpc::ServerWriter<v1::TuneProgress>* writer) override {
    {
      MutexLock lock(mu_);
      tune_request_ = *request;
    }
    return Answer(context, tune, writer);
  }
  grpc::Status Study(grpc::ServerContext* context, const v1::StudyRequest* request,
                     grpc::ServerWriter<v1::StudyPoint>* writer) override {
    {
      MutexLock lock(mu_);
      study_request_ = *request;
    }
    return Answer(context, study, writer);
  }
  grpc::Status ExplainPlan(grpc::ServerContext*, const v1::ExplainPlanRequest* request,
                           v1::ExplainPlanResponse* response) override {
    return explain ? explain(*request, response) : grpc::Status(grpc::StatusCode::INTERNAL, "no");
  }
  grpc::Status Profile(grpc::ServerContext* context, const v1::ProfileRequest* request,
                       v1::ProfileResponse* response) override {
    {
      MutexLock lock(mu_);
      profile_request_ = *request;
    }
    ++calls_;
    *response = profile;
    return EndUnary(context);
  }
  grpc::Status GetStatistics(grpc::ServerContext* context, const v1::GetStatisticsRequest*,
                             v1::Statistics* response) override {
    const int call = calls_++;
    const grpc::Status status =
        statistics ? statistics(call, response) : grpc::Status(grpc::StatusCode::INTERNAL, "no");
    return status.ok() ? EndUnary(context) : status;
  }

  // Set before the call. What each stream sends, and how it ends.
  std::vector<v1::TuneProgress> tune;
  std::vector<v1::StudyPoint> study;
  grpc::Status ends_with;
  bool headers = false;  // before any message
  std::function<void()> on_headers;
  std::atomic<bool> hold{false};  // a call stays open after its messages until it is cancelled
  std::function<grpc::Status(const v1::ExplainPlanRequest&, v1::ExplainPlanResponse*)> explain;
  v1::ProfileResponse profile;
  std::function<grpc::Status(int call, v1::Statistics*)> statistics;  // of the first call: 0
  // Of the calls that answer once: before they return, or are held.
  std::function<void()> on_call;

  v1::TuneRequest tune_request() {
    MutexLock lock(mu_);
    return tune_request_;
  }
  v1::StudyRequest study_request() {
    MutexLock lock(mu_);
    return study_request_;
  }
  v1::ProfileRequest profile_request() {
    MutexLock lock(mu_);
    return profile_request_;
  }
  int calls() const { return calls_; }
  int cancelled() const { return cancelled_; }

 private:
  grpc::Status EndUnary(grpc::ServerContext* context) {
    if (on_call) on_call();
    while (hold && !context->IsCancelled()) std::this_thread::yield();
    if (context->IsCancelled()) ++cancelled_;
    return ends_with;
  }

  template <typename Message>
  grpc::Status Answer(grpc::ServerContext* context, const std::vector<Message>& messages,
                      grpc::ServerWriter<Message>* writer) {
    ++calls_;
    if (headers) {
      writer->SendInitialMetadata();
      if (on_headers) on_headers();
    }
    for (const Message& message : messages) {
      if (!writer->Write(message)) break;
    }
    while (hold && !context->IsCancelled()) std::this_thread::yield();
    if (context->IsCancelled()) ++cancelled_;
    return ends_with;
  }

  std::atomic<int> calls_{0}, cancelled_{0};
  Mutex mu_;
  v1::TuneRequest tune_request_ GUARDED_BY(mu_);
  v1::StudyRequest study_request_ GUARDED_BY(mu_);
  v1::ProfileRequest profile_request_ GUARDED_BY(mu_);
};

// Its server's health.
class FakeHealth final : public grpc::health::v1::Health::Service {
 public:
  grpc::Status Check(grpc::ServerContext* context, const grpc::health::v1::HealthCheckRequest*,
                     grpc::health::v1::HealthCheckResponse* response) override {
    ++checks_;
    while (mute && !context->IsCancelled()) std::this_thread::yield();
    response->set_status(grpc::health::v1::HealthCheckResponse::SERVING);
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext* context, const grpc::health::v1::HealthCheckRequest*,
                     grpc::ServerWriter<grpc::health::v1::HealthCheckResponse>* writer) override {
    writer->Write({});
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  }

  std::atomic<bool> mute{false};  // answers no check
  int checks() const { return checks_; }

 private:
  std::atomic<int> checks_{0};
};

// Both, in this process, on a socket of their own.
class FakeTunerServer {
 public:
  explicit FakeTunerServer(const std::string& name)
      : target_("unix:" + ::testing::TempDir() + name + "." + std::to_string(getpid())) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(target_, grpc::InsecureServerCredentials());
    builder.RegisterService(&tuner_);
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~FakeTunerServer() { WaitUntilIdle(); }
  FakeTunerServer(const FakeTunerServer&) = delete;
  FakeTunerServer& operator=(const FakeTunerServer&) = delete;

  FakeTuner& tuner() { return tuner_; }
  FakeHealth& health() { return health_; }
  const std::string& target() const { return target_; }
  // Serves no more; returns when every call has ended.
  void WaitUntilIdle() { server_->Shutdown(std::chrono::system_clock::now()); }

 private:
  const std::string target_;
  FakeTuner tuner_;
  FakeHealth health_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gemmd
