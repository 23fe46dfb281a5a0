// Calls of Tune, Study and Profile to a server in this process.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "tests/e2e/server_fixture.h"

namespace gemmd::testing {

inline v1::Problem MakeProblem(int64_t m, int64_t n, int64_t k,
                               v1::DataType type = v1::DATA_TYPE_F32) {
  v1::Problem problem;
  problem.set_m(m);
  problem.set_n(n);
  problem.set_k(k);
  problem.set_type_a(type);
  return problem;
}

// That a status is about; empty: it names none.
inline std::string FieldOf(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::BadRequest bad;
  if (!details.ParseFromString(status.error_details()) || details.details_size() == 0 ||
      !details.details(0).UnpackTo(&bad)) {
    return "";
  }
  return bad.field_violations(0).field();
}

template <typename Request>
Request Of(const std::vector<v1::Problem>& problems) {
  Request request;
  for (const v1::Problem& problem : problems) *request.add_problems() = problem;
  return request;
}

// A stream that is read as the test says. Cancelled when the test has not read it to its end.
template <typename Message>
class Stream {
 public:
  template <typename Start>
  explicit Stream(Start start) {
    context_.set_deadline(std::chrono::system_clock::now() + kLongEnough);
    reader_ = start(&context_);
  }
  ~Stream() {
    if (ended_) return;
    context_.TryCancel();
    End();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void Cancel() { context_.TryCancel(); }
  // Reads what is left.
  grpc::Status End() {
    Message message;
    while (reader_->Read(&message)) messages_.push_back(message);
    ended_ = true;
    return reader_->Finish();
  }
  const std::vector<Message>& messages() const { return messages_; }  // that End() read

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<Message>> reader_;
  std::vector<Message> messages_;
  bool ended_ = false;
};

class TuningTest : public ServerFixture {
 protected:
  using TuneStream = Stream<v1::TuneProgress>;
  using StudyStream = Stream<v1::StudyPoint>;

  void StartOnManualH200() { StartOnManual({.memory_bytes = 1 << 30, .traits = H200Traits()}); }

  // From now on calls go over a connection that carries at most 64 KiB of a stream before its
  // receiver reads, however slow or fast this machine is.
  void NarrowConnection() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
    info_ = v1::ServerService::NewStub(grpc::CreateCustomChannel(
        server_->grpc_address(), grpc::InsecureChannelCredentials(), arguments));
  }

  auto Starting(const v1::TuneRequest& request) {
    return [this, request](grpc::ClientContext* context) { return info_->Tune(context, request); };
  }
  auto Starting(const v1::StudyRequest& request) {
    return [this, request](grpc::ClientContext* context) { return info_->Study(context, request); };
  }
  static v1::TuneRequest Calibrating() {
    v1::TuneRequest request;
    request.set_calibrate(true);
    return request;
  }
  grpc::Status Tune(const v1::TuneRequest& request) { return TuneStream(Starting(request)).End(); }
  grpc::Status Study(const v1::StudyRequest& request) {
    return StudyStream(Starting(request)).End();
  }

  v1::Plan Explain(const v1::Problem& problem) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::ExplainPlanRequest request;
    *request.mutable_problem() = problem;
    v1::ExplainPlanResponse response;
    EXPECT_TRUE(info_->ExplainPlan(&context, request, &response).ok());
    return response.plan();
  }
  bool IsMeasured(const v1::Problem& problem) {
    return Explain(problem).source() == v1::PLAN_SOURCE_MEASURED;
  }
};

}  // namespace gemmd::testing
