#include "server/rpc/rpc_server.h"

#include <algorithm>
#include <utility>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include "server/rpc/call_counter.h"
#include "server/rpc/gemm_service.h"
#include "server/rpc/unbuilt_services.h"

namespace gemmd {
namespace {

constexpr int kMaxConcurrentStreams = 128;  // of one connection
constexpr int kMaxMetadataBytes = 8 << 10;
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinPingIntervalMs = 10'000;
// Messages that the transport may hold besides those that the queue accounts for.
constexpr int64_t kMessagesInTransit = 16;

void SetLimits(const RpcFacts& facts, grpc::ServerBuilder* builder) {
  const auto message_bytes = static_cast<int>(facts.max_message_bytes + kMessageSlackBytes);
  builder->SetMaxReceiveMessageSize(message_bytes);
  builder->SetMaxSendMessageSize(message_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kMinPingIntervalMs);
  // A second server on the same port must fail to start, not share its connections.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A small compressed message could claim memory far past the message limit, and matrices of
  // random numbers do not shrink.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);

  grpc::ResourceQuota quota("gemmd");
  quota.Resize(static_cast<size_t>(facts.max_queued_bytes) +
               static_cast<size_t>(kMessagesInTransit * message_bytes));
  builder->SetResourceQuota(quota);
}

std::chrono::system_clock::time_point ToSystem(SteadyClock::time_point deadline) {
  const auto left = std::max(deadline - SteadyClock::now(), SteadyClock::duration::zero());
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(left);
}

}  // namespace

// Services before the server: it is destroyed first, and its calls use them.
struct RpcServer::Parts {
  Parts(RpcOptions options_in, Engine* engine, const RpcObservers& observers,
        std::vector<const Backend*> backends, const TotalsObserver* totals, spdlog::logger* log)
      : options(std::move(options_in)),
        gemm(engine, observers.products, observers.calls, options.facts.max_message_bytes, log),
        server_info(options.facts, engine, std::move(backends), totals) {}

  const RpcOptions options;
  GemmServiceImpl gemm;
  ServerServiceImpl server_info;
  UnbuiltTensorService tensors;
  UnbuiltSharedMemoryService shared_memory;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

RpcServer::RpcServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(RpcOptions options, Engine* engine,
                                                      const RpcObservers& observers,
                                                      std::vector<const Backend*> backends,
                                                      const TotalsObserver* totals,
                                                      spdlog::logger* log) {
  // Both switch a service on for every builder of the process.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  auto parts = std::make_unique<Parts>(std::move(options), engine, observers, std::move(backends),
                                       totals, log);
  const std::string wanted = parts->options.host + ":" + std::to_string(parts->options.port);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(wanted, grpc::InsecureServerCredentials(), &parts->port);
  SetLimits(parts->options.facts, &builder);
  builder.experimental().SetInterceptorCreators(CallCounters(observers.calls));
  builder.RegisterService(&parts->gemm);
  builder.RegisterService(&parts->server_info);
  builder.RegisterService(&parts->tensors);
  builder.RegisterService(&parts->shared_memory);
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr || parts->port == 0) {
    return FailedPrecondition("cannot listen on " + wanted +
                              " for gRPC: the port is taken, or the address is not this host's")
        .WithField("listen");
  }
  parts->server->GetHealthCheckService()->SetServingStatus(v1::GemmService::service_full_name(),
                                                           true);
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(parts)));
}

RpcServer::~RpcServer() { Shutdown(SteadyClock::now()); }

int RpcServer::port() const { return parts_->port; }

std::string RpcServer::address() const {
  return parts_->options.host + ":" + std::to_string(parts_->port);
}

void RpcServer::StopServing() { parts_->server->GetHealthCheckService()->Shutdown(); }

bool RpcServer::WaitIdle(SteadyClock::time_point deadline) {
  return parts_->gemm.WaitIdle(deadline);
}

void RpcServer::Shutdown(SteadyClock::time_point deadline) {
  parts_->server->Shutdown(ToSystem(deadline));
}

}  // namespace gemmd
