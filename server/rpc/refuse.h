// Reactors for streaming calls that this server refuses outright.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "kernels/core/status.h"
#include "server/rpc/grpc_status.h"

namespace gemmd {

// `Base` is one of gRPC's server reactors. Ends the call with `status`, and deletes itself.
template <typename Base>
class RefusingReactor final : public Base {
 public:
  explicit RefusingReactor(const Status& status) { this->Finish(ToGrpcStatus(status)); }

 private:
  void OnDone() override { delete this; }
};

template <typename Request, typename Response>
grpc::ServerBidiReactor<Request, Response>* RefuseBidi(const Status& status) {
  return new RefusingReactor<grpc::ServerBidiReactor<Request, Response>>(status);
}

template <typename Request>
grpc::ServerReadReactor<Request>* RefuseRead(const Status& status) {
  return new RefusingReactor<grpc::ServerReadReactor<Request>>(status);
}

template <typename Response>
grpc::ServerWriteReactor<Response>* RefuseWrite(const Status& status) {
  return new RefusingReactor<grpc::ServerWriteReactor<Response>>(status);
}

// Ends a unary call with any status, OK included.
inline grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                             const Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace gemmd
