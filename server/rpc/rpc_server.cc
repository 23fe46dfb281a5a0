#include "server/rpc/rpc_server.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <unistd.h>

#include "server/rpc/call_counter.h"
#include "server/rpc/gemm_service.h"
#include "server/rpc/listener.h"
#include "server/rpc/unbuilt_services.h"

namespace gemmd {
namespace {

constexpr int kMaxConcurrentStreams = 128;  // of one connection
constexpr int kMaxMetadataBytes = 8 << 10;
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinPingIntervalMs = 10'000;
// Callers that connect and say nothing, or have not called for so long, cost a descriptor each.
constexpr int kHandshakeTimeoutMs = 20'000;
constexpr int kMaxConnectionIdleMs = 10 * 60'000;
// Messages that the transport may hold besides those that the queue accounts for.
constexpr int64_t kMessagesInTransit = 16;

void SetLimits(const RpcFacts& facts, grpc::ServerBuilder* builder) {
  const auto message_bytes = static_cast<int>(facts.max_message_bytes);
  builder->SetMaxReceiveMessageSize(message_bytes);
  builder->SetMaxSendMessageSize(message_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kMinPingIntervalMs);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxConnectionIdleMs);
  // A small compressed message could claim memory far past the message limit, and matrices of
  // random numbers do not shrink.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);

  grpc::ResourceQuota quota("gemmd");
  quota.Resize(static_cast<size_t>(facts.max_queued_bytes) +
               static_cast<size_t>(kMessagesInTransit * message_bytes));
  builder->SetResourceQuota(quota);
}

// Descriptors that connections leave for logs, metrics, devices and files.
constexpr int kReservedFiles = 64;

int DefaultFdLimit() {
  const auto files =
      static_cast<int>(std::min<int64_t>(sysconf(_SC_OPEN_MAX), std::numeric_limits<int>::max()));
  return std::max(files - kReservedFiles, files / 2);
}

}  // namespace

// Services before the server: it is destroyed first, and its calls use them.
struct RpcServer::Parts {
  Parts(RpcOptions options_in, Engine* engine, ReplyBudget* replies, const RpcObservers& observers,
        std::vector<const Backend*> backends, const TotalsObserver* totals, const RpcTuning& tuning,
        spdlog::logger* log)
      : options(std::move(options_in)),
        gemm(engine, replies, observers.products, observers.calls, options.facts.max_message_bytes,
             log),
        server_info(options.facts, engine, std::move(backends), totals, tuning) {}

  const RpcOptions options;
  GemmServiceImpl gemm;
  ServerServiceImpl server_info;
  UnbuiltTensorService tensors;
  UnbuiltSharedMemoryService shared_memory;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Listener> listener;
};

RpcServer::RpcServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    RpcOptions options, Engine* engine, ReplyBudget* replies, const RpcObservers& observers,
    std::vector<const Backend*> backends, const TotalsObserver* totals, const RpcTuning& tuning,
    spdlog::logger* log) {
  // Both switch a service on for every builder of the process.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  auto parts = std::make_unique<Parts>(std::move(options), engine, replies, observers,
                                       std::move(backends), totals, tuning, log);
  ASSIGN_OR_RETURN(parts->listener, Listener::Bind(parts->options.host, parts->options.port, log));
  grpc::ServerBuilder builder;
  parts->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  SetLimits(parts->options.facts, &builder);
  builder.experimental().SetInterceptorCreators(CallCounters(observers.calls));
  builder.RegisterService(&parts->gemm);
  builder.RegisterService(&parts->server_info);
  builder.RegisterService(&parts->tensors);
  builder.RegisterService(&parts->shared_memory);
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr) return Internal("gRPC did not start; its log says why");
  parts->server->GetHealthCheckService()->SetServingStatus(v1::GemmService::service_full_name(),
                                                           true);
  const int fd_limit = parts->options.fd_limit > 0 ? parts->options.fd_limit : DefaultFdLimit();
  parts->listener->Start(fd_limit, [acceptor = parts->acceptor.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(parts)));
}

RpcServer::~RpcServer() { Shutdown(std::chrono::milliseconds(0)); }

int RpcServer::port() const { return parts_->listener->port(); }

std::string RpcServer::address() const {
  return parts_->options.host + ":" + std::to_string(port());
}

void RpcServer::StopServing() { parts_->server->GetHealthCheckService()->Shutdown(); }

bool RpcServer::WaitIdle(SteadyClock::time_point deadline) {
  return parts_->gemm.WaitIdle(deadline) && parts_->server_info.open_runs().WaitIdle(deadline);
}

int RpcServer::open_gemm_calls() const { return parts_->gemm.open_calls(); }

// gRPC's own end answers calls that arrive during it with CANCELLED, as though their callers had
// wanted that. So the connections end first: a caller then sees UNAVAILABLE.
void RpcServer::Shutdown(std::chrono::milliseconds last_words) {
  parts_->listener->Stop();
  const SteadyClock::time_point deadline = SteadyClock::now() + last_words;
  while (parts_->listener->open_connections() > 0 && SteadyClock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  parts_->listener->EndConnections();
  parts_->server->Shutdown(std::chrono::system_clock::now());
}

}  // namespace gemmd
