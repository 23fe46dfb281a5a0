// A Gemm call that runs beside its test.
#pragma once

#include <future>
#include <memory>

#include <grpcpp/grpcpp.h>

#include "gemmd/v1/gemm.grpc.pb.h"

namespace gemmd::testing {

// Ends before it is destroyed: cancelled when the test has not waited for it.
class AsyncCall {
 public:
  AsyncCall(v1::GemmService::Stub* stub, v1::GemmRequest request,
            std::chrono::system_clock::time_point deadline)
      : request_(std::move(request)), ended_(promise_.get_future().share()) {
    context_.set_deadline(deadline);
    stub->async()->Gemm(&context_, &request_, &response_,
                        [this](grpc::Status status) { promise_.set_value(std::move(status)); });
  }
  ~AsyncCall() {
    context_.TryCancel();
    ended_.wait();
  }
  AsyncCall(const AsyncCall&) = delete;
  AsyncCall& operator=(const AsyncCall&) = delete;

  void Cancel() { context_.TryCancel(); }
  bool ended() const {
    return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  grpc::Status Wait() const { return ended_.get(); }
  const v1::GemmResponse& response() const { return response_; }  // once ended

 private:
  grpc::ClientContext context_;
  const v1::GemmRequest request_;
  v1::GemmResponse response_;
  std::promise<grpc::Status> promise_;
  const std::shared_future<grpc::Status> ended_;
};

}  // namespace gemmd::testing
