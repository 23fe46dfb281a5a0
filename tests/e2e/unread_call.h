// A Gemm call whose caller never reads the reply.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "gemmd/v1/gemm.grpc.pb.h"

namespace gemmd::testing {

// A reply of some MiB, more than a connection carries before its receiver reads, stays with the
// server. Ends before it is destroyed.
class UnreadCall {
 public:
  UnreadCall(const std::shared_ptr<grpc::Channel>& channel, const v1::GemmRequest& request)
      : stub_(channel) {
    const std::string bytes = request.SerializeAsString();
    grpc::Slice slice(bytes);
    const grpc::ByteBuffer message(&slice, 1);
    call_ = stub_.PrepareUnaryCall(&context_, "/gemmd.v1.GemmService/Gemm", message, &queue_);
    call_->StartCall();
    call_->ReadInitialMetadata(nullptr);  // sends the request
  }
  ~UnreadCall() {
    if (!finished_) Cancel();
  }
  UnreadCall(const UnreadCall&) = delete;
  UnreadCall& operator=(const UnreadCall&) = delete;

  grpc::Status Cancel() {
    context_.TryCancel();
    return Finish();
  }
  // Reads the reply after all.
  grpc::Status Finish() {
    finished_ = true;
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    grpc::Status status;
    call_->Finish(&response_, &status, nullptr);
    queue_.Next(&tag, &ok);
    return status;
  }
  size_t response_bytes() const { return response_.Valid() ? response_.Length() : 0; }

 private:
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call_;
  grpc::ByteBuffer response_;
  bool finished_ = false;
};

}  // namespace gemmd::testing
