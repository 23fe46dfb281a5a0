// What the sources of GemmClient share. Internal to the client.
#pragma once

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <random>
#include <stop_token>
#include <string>

#include <grpcpp/grpcpp.h>

#include "client/gemm_client.h"
#include "client/wire.h"
#include "gemmd/v1/gemm.grpc.pb.h"
#include "gemmd/v1/server.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/core/mutex.h"

namespace gemmd {

using SteadyClock = std::chrono::steady_clock;

// Protobuf aborts the process that serialises a message of 2^31 bytes or more.
inline constexpr int64_t kMostMessageBytes =
    std::numeric_limits<int32_t>::max() - (int64_t{64} << 10);

class Deadline {
 public:
  explicit Deadline(Milliseconds timeout) : timeout_(timeout), at_(SteadyClock::now() + timeout) {}
  Milliseconds timeout() const { return timeout_; }
  Milliseconds Remaining() const {
    return std::chrono::duration_cast<Milliseconds>(at_ - SteadyClock::now());
  }
  void ApplyTo(grpc::ClientContext* context) const {
    context->set_deadline(std::chrono::system_clock::now() + Remaining());
  }

 private:
  Milliseconds timeout_;
  SteadyClock::time_point at_;
};

inline Status CheckTimeout(Milliseconds timeout) {
  // Far beyond this, adding it to a clock would overflow.
  constexpr Milliseconds kMost = std::chrono::hours(24 * 365);
  if (timeout > Milliseconds(0) && timeout <= kMost) return OkStatus();
  return InvalidArgument("timeout", "timeout=" + std::to_string(timeout.count()) +
                                        " ms is not between 1 and " +
                                        std::to_string(kMost.count()) + " ms");
}

inline Status FromCall(const grpc::Status& status, const Deadline& deadline) {
  Status result = wire::FromGrpc(status);
  if (result.code() != StatusCode::kDeadlineExceeded) return result;
  return DeadlineExceeded(result.message() + " (timeout " +
                          std::to_string(deadline.timeout().count()) + " ms)");
}

// CANCELLED when `stop` is requested.
template <typename Stub, typename Request, typename Response>
Status Call(Stub* stub,
            grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
            const Request& request, Response* response, const Deadline& deadline,
            const std::stop_token& stop = {}) {
  grpc::ClientContext context;
  deadline.ApplyTo(&context);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  Status status = FromCall((stub->*method)(&context, request, response), deadline);
  if (status.code() != StatusCode::kCancelled || !stop.stop_requested()) return status;
  return Cancelled("the caller ended the call");
}

struct GemmClient::Impl {
  explicit Impl(ClientOptions client_options) : options(std::move(client_options)) {}

  double Jitter() EXCLUDES(mu) {
    MutexLock lock(mu);
    return std::uniform_real_distribution<double>(0, 1)(random);
  }

  // The server's limit, asked for once; ours until it has answered.
  int64_t MessageLimit(const Deadline& deadline) {
    const int64_t known = message_limit.load(std::memory_order_relaxed);
    if (known > 0) return known;
    v1::ServerInfo info;
    const Status status = Call(server.get(), &v1::ServerService::StubInterface::GetServerInfo,
                               v1::GetServerInfoRequest(), &info, deadline);
    if (!status.ok() && status.code() != StatusCode::kUnimplemented) {
      return options.max_message_bytes;
    }
    return Learn(info);
  }

  int64_t Learn(const v1::ServerInfo& info) {
    int64_t limit = info.limits().max_message_bytes();
    if (limit <= 0) limit = options.max_message_bytes;
    limit = std::min(limit, kMostMessageBytes);
    message_limit.store(limit, std::memory_order_relaxed);
    return limit;
  }

  Status SendWithRetries(const v1::GemmRequest& request, const CallOptions& call,
                         const Deadline& deadline, v1::GemmResponse* response,
                         ClientResult* result);

  const ClientOptions options;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::GemmService::StubInterface> gemm;
  std::unique_ptr<v1::ServerService::StubInterface> server;
  std::unique_ptr<grpc::health::v1::Health::StubInterface> health;
  std::atomic<int64_t> message_limit{0};  // 0: not asked yet; any order, a plain value
  Mutex mu;
  std::minstd_rand random GUARDED_BY(mu){std::random_device{}()};
};

}  // namespace gemmd
