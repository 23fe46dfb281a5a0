// Tells a CallObserver of every call of a gRPC server, whoever answers it: a service, or gRPC
// itself for a method that is not there or bytes that are no message.
#pragma once

#include <memory>
#include <vector>

#include <grpcpp/support/server_interceptor.h>

#include "server/engine/call_observer.h"

namespace gemmd {

// For ServerBuilder. `observer` outlives the server.
std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> CallCounters(
    CallObserver* observer);

}  // namespace gemmd
