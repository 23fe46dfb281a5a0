#include "client/gemm_client.h"

#include <cstring>
#include <new>
#include <thread>

#include "client/gemm_client_impl.h"
#include "client/retry_policy.h"
#include "kernels/core/checked.h"
#include "kernels/core/text.h"

namespace gemmd {
namespace {

// Room for what a message holds besides operands or result: lengths, tags, the execution record.
constexpr int64_t kEnvelopeBytes = 1024;

// gRPC takes a target without a port for one on port 443.
Status CheckTarget(const std::string& target) {
  if (target.rfind("unix:", 0) == 0 && target.size() > 5) return OkStatus();
  const size_t colon = target.rfind(':');
  const bool bracketed = !target.empty() && target.front() == '[';
  const std::string port = colon == std::string::npos ? "" : target.substr(colon + 1);
  const bool one_colon =
      bracketed ? colon > 0 && target[colon - 1] == ']' : target.find(':') == colon;
  const int number = ParseNumber<int>(port).value_or(0);
  if (colon == 0 || !one_colon || number < 1 || number > 65535) {
    return InvalidArgument("server",
                           "server=\"" + target + "\" is not HOST:PORT, [IPv6]:PORT or unix:PATH");
  }
  return OkStatus();
}

}  // namespace

std::string_view Name(Serving serving) {
  switch (serving) {
    case Serving::kUnknown: return "UNKNOWN";
    case Serving::kServing: return "SERVING";
    case Serving::kNotServing: return "NOT_SERVING";
    case Serving::kServiceUnknown: return "SERVICE_UNKNOWN";
  }
  return "UNKNOWN";
}

Status GemmClient::Impl::SendWithRetries(const v1::GemmRequest& request, const CallOptions& call,
                                         const Deadline& deadline, v1::GemmResponse* response,
                                         ClientResult* result) {
  const RetryPolicy policy{.max_retries = call.max_retries,
                           .initial_backoff = options.initial_backoff};
  for (int attempt = 1;; ++attempt) {
    response->Clear();
    const SteadyClock::time_point start = SteadyClock::now();
    Status status =
        Call(gemm.get(), &v1::GemmService::StubInterface::Gemm, request, response, deadline);
    result->attempts = attempt;
    result->round_trip = SteadyClock::now() - start;
    if (status.ok()) return status;
    const auto delay = policy.NextDelay(status, attempt, deadline.Remaining(), Jitter());
    if (delay) {
      std::this_thread::sleep_for(*delay);
      continue;
    }
    if (attempt == 1) return status;
    const std::string count = " (attempt " + std::to_string(attempt) + ", the last)";
    Status last = Status(status.code(), status.message() + count).WithField(status.field());
    if (status.retry_after()) return std::move(last).WithRetryAfter(*status.retry_after());
    return last;
  }
}

GemmClient::GemmClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GemmClient::~GemmClient() = default;

StatusOr<std::unique_ptr<GemmClient>> GemmClient::Create(ClientOptions options) {
  RETURN_IF_ERROR(CheckTarget(options.target));
  if (options.max_message_bytes < 1 || options.max_message_bytes > kMostMessageBytes) {
    return InvalidArgument("max_message_bytes",
                           "max_message_bytes=" + std::to_string(options.max_message_bytes) +
                               " is not between 1 and " + std::to_string(kMostMessageBytes));
  }
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(-1);  // the result's size is judged before the call
  args.SetMaxSendMessageSize(-1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a proxy for the web does not carry this traffic
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own for each client
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);  // how long one connect may take
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  auto impl = std::make_unique<Impl>(std::move(options));
  impl->channel =
      grpc::CreateCustomChannel(impl->options.target, grpc::InsecureChannelCredentials(), args);
  impl->gemm = v1::GemmService::NewStub(impl->channel);
  impl->server = v1::ServerService::NewStub(impl->channel);
  impl->health = grpc::health::v1::Health::NewStub(impl->channel);
  return std::unique_ptr<GemmClient>(new GemmClient(std::move(impl)));
}

Status GemmClient::Connect(Milliseconds timeout) {
  RETURN_IF_ERROR(CheckTimeout(timeout));
  const Deadline deadline(timeout);
  if (impl_->channel->WaitForConnected(std::chrono::system_clock::now() + timeout * 9 / 10)) {
    return OkStatus();
  }
  // The channel keeps its reason to itself; a call that fails tells it.
  grpc::health::v1::HealthCheckResponse response;
  const Status status = Call(impl_->health.get(), &grpc::health::v1::Health::StubInterface::Check,
                             grpc::health::v1::HealthCheckRequest(), &response, deadline);
  if (status.ok()) return status;
  const std::string reason =
      status.code() == StatusCode::kUnavailable ? status.message() : "no gRPC server answers there";
  return Unavailable("cannot connect to " + impl_->options.target + " within " +
                     std::to_string(timeout.count()) + " ms: " + reason);
}

namespace {

// The operands to send, and how each is sent.
StatusOr<std::vector<wire::Operand>> PlanOperands(const GemmProblem& p, const HostOperands& from,
                                                  bool trim) {
  std::vector<wire::Operand> operands;
  const auto add = [&](std::string_view field, const MatrixLayout& layout, int64_t batch,
                       DType type, const std::byte* data) -> Status {
    ASSIGN_OR_RETURN(wire::Operand operand,
                     wire::PlanOperand(field, layout, batch, type, data, !trim));
    operands.push_back(operand);
    return OkStatus();
  };
  if (p.reads_ab() || (!trim && from.a != nullptr)) {
    RETURN_IF_ERROR(add("a", p.a, p.batch, p.type_a, from.a));
  }
  if (p.reads_ab() || (!trim && from.b != nullptr)) {
    RETURN_IF_ERROR(add("b", p.b, p.batch, p.type_b, from.b));
  }
  if (p.reads_c() || (!trim && from.c != nullptr))
    RETURN_IF_ERROR(add("c", p.c, p.batch, p.type_d, from.c));
  if (p.bias != BiasAxis::kNone && !p.empty()) {
    const int64_t length = p.bias_length();
    const MatrixLayout row{.rows = 1, .cols = length, .ld = length, .batch_stride = 0};
    RETURN_IF_ERROR(add("bias", row, 1, p.type_d, from.bias));
  }
  return operands;
}

// OUT_OF_RANGE when request or result would not fit a message of `limit` bytes.
Status CheckSizes(const std::vector<wire::Operand>& operands, int64_t result_bytes,
                  int64_t header_bytes, int64_t limit) {
  std::optional<int64_t> total = header_bytes + kEnvelopeBytes;
  std::string parts;
  const wire::Operand* largest = nullptr;
  for (const wire::Operand& operand : operands) {
    total = CheckedAdd(total, operand.bytes);
    parts += (parts.empty() ? "" : ", ") + std::string(operand.field) + " " +
             std::to_string(operand.bytes);
    if (largest == nullptr || operand.bytes > largest->bytes) largest = &operand;
  }
  const std::string of_limit =
      " exceeds the limit of " + std::to_string(limit) + " bytes of one message";
  if (!total || *total > limit) {
    const std::string size = total ? std::to_string(*total) : "2^63 or more";
    return OutOfRange(largest ? std::string(largest->field) : "request",
                      "request of " + size + " bytes (" + parts + ")" + of_limit);
  }
  if (result_bytes > limit - kEnvelopeBytes) {
    return OutOfRange("d", "result d of " + std::to_string(result_bytes) + " bytes" + of_limit);
  }
  return OkStatus();
}

// Copies the operands into the request; they have been found to fit.
Status FillOperands(const std::vector<wire::Operand>& operands, v1::GemmRequest* request) {
  try {
    for (const wire::Operand& operand : operands) {
      v1::Matrix* matrix = operand.field == "a"   ? request->mutable_a()
                           : operand.field == "b" ? request->mutable_b()
                           : operand.field == "c" ? request->mutable_c()
                                                  : request->mutable_bias();
      wire::Fill(operand, matrix);
    }
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory for the request's message");
  }
  return OkStatus();
}

}  // namespace

StatusOr<ClientResult> GemmClient::Gemm(const GemmProblem& problem, const HostOperands& operands,
                                        const CallOptions& options) {
  RETURN_IF_ERROR(CheckTimeout(options.timeout));
  const Deadline deadline(options.timeout);
  RETURN_IF_ERROR(ValidateProblem(problem));
  RETURN_IF_ERROR(wire::CheckText(options));
  ASSIGN_OR_RETURN(const int64_t result_bytes, ResultBytes(problem));
  if (result_bytes > 0 && operands.d == nullptr) {
    return InvalidArgument("d", "d is null and holds " + std::to_string(result_bytes) + " bytes");
  }
  ASSIGN_OR_RETURN(const std::vector<wire::Operand> sent,
                   PlanOperands(problem, operands, options.trim));

  v1::GemmRequest request;
  request.set_request_id(options.request_id);
  *request.mutable_problem() = ToProto(problem);
  wire::ToProto(options, request.mutable_plan());
  const auto header_bytes = static_cast<int64_t>(request.ByteSizeLong());
  // First without asking anybody: what no server can take needs no server to refuse it.
  RETURN_IF_ERROR(CheckSizes(sent, result_bytes, header_bytes, kMostMessageBytes));
  RETURN_IF_ERROR(CheckSizes(sent, result_bytes, header_bytes, impl_->MessageLimit(deadline)));
  RETURN_IF_ERROR(FillOperands(sent, &request));

  v1::GemmResponse response;
  ClientResult call;
  RETURN_IF_ERROR(impl_->SendWithRetries(request, options, deadline, &response, &call));
  if (static_cast<int64_t>(response.d().size()) != result_bytes) {
    return Internal("the server answered " + std::to_string(response.d().size()) +
                    " bytes of d, not " + std::to_string(result_bytes));
  }
  if (result_bytes > 0) std::memcpy(operands.d, response.d().data(), response.d().size());
  ClientResult result = wire::FromProto(response.execution());
  result.attempts = call.attempts;
  result.round_trip = call.round_trip;
  return result;
}

StatusOr<ClientServerInfo> GemmClient::Info(const CallOptions& options) {
  RETURN_IF_ERROR(CheckTimeout(options.timeout));
  v1::ServerInfo info;
  RETURN_IF_ERROR(Call(impl_->server.get(), &v1::ServerService::StubInterface::GetServerInfo,
                       v1::GetServerInfoRequest(), &info, Deadline(options.timeout)));
  impl_->Learn(info);
  return wire::FromProto(info);
}

StatusOr<std::vector<ClientKernel>> GemmClient::ListKernels(const CallOptions& options) {
  RETURN_IF_ERROR(CheckTimeout(options.timeout));
  v1::ListKernelsResponse response;
  RETURN_IF_ERROR(Call(impl_->server.get(), &v1::ServerService::StubInterface::ListKernels,
                       v1::ListKernelsRequest(), &response, Deadline(options.timeout)));
  std::vector<ClientKernel> kernels;
  for (const v1::Kernel& kernel : response.kernels()) kernels.push_back(wire::FromProto(kernel));
  return kernels;
}

StatusOr<ClientExplanation> GemmClient::Plan(const GemmProblem& problem,
                                             const CallOptions& options) {
  RETURN_IF_ERROR(CheckTimeout(options.timeout));
  RETURN_IF_ERROR(ValidateProblem(problem));
  RETURN_IF_ERROR(wire::CheckText(options));
  v1::ExplainPlanRequest request;
  *request.mutable_problem() = ToProto(problem);
  wire::ToProto(options, request.mutable_plan());
  request.set_lda(problem.a.ld);
  request.set_ldb(problem.b.ld);
  request.set_ldc(problem.c.ld);
  v1::ExplainPlanResponse response;
  RETURN_IF_ERROR(Call(impl_->server.get(), &v1::ServerService::StubInterface::ExplainPlan, request,
                       &response, Deadline(options.timeout)));
  ClientExplanation explanation{.plan = wire::FromProto(response.plan()), .candidates = {}};
  for (const v1::Plan& plan : response.candidates()) {
    explanation.candidates.push_back(wire::FromProto(plan));
  }
  return explanation;
}

StatusOr<ClientStatistics> GemmClient::Statistics(const CallOptions& options,
                                                  const std::stop_token& stop) {
  RETURN_IF_ERROR(CheckTimeout(options.timeout));
  v1::Statistics statistics;
  RETURN_IF_ERROR(Call(impl_->server.get(), &v1::ServerService::StubInterface::GetStatistics,
                       v1::GetStatisticsRequest(), &statistics, Deadline(options.timeout), stop));
  return wire::FromProto(statistics);
}

StatusOr<ClientProfile> GemmClient::Profile(const ClientProfileRequest& request,
                                            const std::stop_token& stop,
                                            const CallOptions& options) {
  constexpr double kDefaultSeconds = 1;  // ProfileRequest.duration's
  RETURN_IF_ERROR(CheckTimeout(options.timeout));
  RETURN_IF_ERROR(ValidateProblem(request.problem));
  RETURN_IF_ERROR(wire::CheckText("kernel", options.kernel));
  v1::ProfileRequest message;
  RETURN_IF_ERROR(wire::ToProto(request, &message));
  wire::ToProto(options, message.mutable_plan());
  const std::chrono::duration<double> duration(
      request.duration_seconds > 0 ? request.duration_seconds : kDefaultSeconds);
  v1::ProfileResponse response;
  RETURN_IF_ERROR(
      Call(impl_->server.get(), &v1::ServerService::StubInterface::Profile, message, &response,
           Deadline(options.timeout + std::chrono::ceil<Milliseconds>(duration)), stop));
  return wire::FromProto(response);
}

StatusOr<Serving> GemmClient::Health(const std::string& service, const CallOptions& options) {
  RETURN_IF_ERROR(CheckTimeout(options.timeout));
  RETURN_IF_ERROR(wire::CheckText("service", service));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  RETURN_IF_ERROR(Call(impl_->health.get(), &grpc::health::v1::Health::StubInterface::Check,
                       request, &response, Deadline(options.timeout)));
  return wire::FromProto(response.status());
}

}  // namespace gemmd
