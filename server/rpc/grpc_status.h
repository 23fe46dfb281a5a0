// The one place where a Status becomes a gRPC status.
#pragma once

#include <grpcpp/support/status.h>

#include "kernels/core/status.h"

namespace gemmd {

// Longer messages are cut, so that a status always fits the metadata that clients accept.
inline constexpr size_t kMaxStatusMessageBytes = 1024;

// Code and message, with google.rpc.Status in the binary details: BadRequest when the status names
// a field, RetryInfo when it says when to try again.
grpc::Status ToGrpcStatus(const Status& status);

}  // namespace gemmd
