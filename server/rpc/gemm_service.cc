#include "server/rpc/gemm_service.h"

#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <utility>

#include <spdlog/spdlog.h>

#include "server/rpc/codec.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/refuse.h"

namespace gemmd {
namespace {

std::string RandomPrefix() {
  std::random_device random;
  return fmt::format("{:08x}", random());
}

// gRPC counts deadlines on the system clock; no deadline is that clock's largest value.
SteadyClock::time_point ToSteady(std::chrono::system_clock::time_point deadline) {
  constexpr auto kFarAway = std::chrono::hours(24 * 365);
  const auto now = std::chrono::system_clock::now();
  if (deadline > now + kFarAway) return SteadyClock::time_point::max();
  if (deadline < now - kFarAway) return SteadyClock::time_point::min();
  return SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(deadline - now);
}

int64_t Micros(Nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

}  // namespace

// One Gemm call. Lifetime: gRPC calls OnDone, which deletes it, after Finish was called, the
// handler returned and no OnCancel runs. Finish is the last thing done to a call by whoever ends
// it: the handler when the request is refused, else the engine's `done`, once. gRPC calls OnCancel
// only after the handler returned, so after Start wrote `engine_id_`.
class GemmServiceImpl::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(GemmServiceImpl* service, const v1::GemmRequest* request, v1::GemmResponse* response)
      : service_(service), request_(request), response_(response) {
    service_->CallStarted();
  }

  void Start(SteadyClock::time_point deadline) {
    StatusOr<DecodedGemm> decoded = DecodeGemm(*request_, service_->max_message_bytes_);
    if (!decoded.ok()) {
      service_->observer_->Rejected(RejectReason::kInvalid);
      return Refuse(decoded.status());
    }
    request_id_ = decoded->request_id.empty() ? service_->NewRequestId() : decoded->request_id;
    problem_ = decoded->problem;

    auto work = std::make_unique<GemmRequest>();
    work->id = request_id_;
    work->problem = decoded->problem;
    work->operands = decoded->operands;
    work->constraints = decoded->constraints;
    work->bytes = decoded->bytes;
    work->received = received_;
    work->deadline = deadline;
    work->decode = SteadyClock::now() - received_;
    work->allocate_result = [this](int64_t bytes) { return AllocateResult(bytes); };
    work->done = [this](const GemmResult& result) { Complete(result); };

    // `done` may already have run when Submit returns; the call still lives until OnDone, which
    // waits for the handler.
    StatusOr<RequestId> id = service_->engine_->Submit(std::move(work));
    if (!id.ok()) return Refuse(id.status());
    engine_id_ = *id;
  }

 private:
  void OnCancel() override {
    if (!engine_id_) return;
    service_->engine_->Cancel(*engine_id_);
    if (on_lane_) {
      CountCancel(replying_ ? CancelPhase::kReply : CancelPhase::kRun);
    } else {
      cancelled_ = true;  // its end will tell whether it waited
    }
  }

  void OnDone() override {
    GemmServiceImpl* const service = service_;
    if (gave_up_waiting_) {
      CountCancel(CancelPhase::kQueue);
    } else if (cancelled_) {
      CountCancel(on_lane_ ? CancelPhase::kRun : CancelPhase::kReply);
    }
    delete this;
    service->CallEnded();
  }

  void CountCancel(CancelPhase phase) { service_->call_observer_->ProductCancelled(phase); }

  // The result goes straight into the reply's own string.
  std::byte* AllocateResult(int64_t bytes) {
    on_lane_ = true;
    try {
      response_->mutable_d()->resize(static_cast<size_t>(bytes));
    } catch (const std::bad_alloc&) {
      return nullptr;
    } catch (const std::length_error&) {
      return nullptr;
    }
    return reinterpret_cast<std::byte*>(response_->mutable_d()->data());
  }

  void Refuse(const Status& status) {
    service_->log_->debug("gemm request id={} refused: {}", request_id_.empty() ? "-" : request_id_,
                          status.ToString());
    Finish(ToGrpcStatus(status));
  }

  void Complete(const GemmResult& result) {
    replying_ = true;
    gave_up_waiting_ = !on_lane_ && (result.status.code() == StatusCode::kCancelled ||
                                     result.status.code() == StatusCode::kDeadlineExceeded);
    Log(result);
    if (result.status.ok()) {
      *response_->mutable_execution() = EncodeExecution(request_id_, problem_, result);
    } else {
      response_->Clear();
    }
    Finish(ToGrpcStatus(result.status));
  }

  void Log(const GemmResult& result) const {
    spdlog::logger& log = *service_->log_;
    if (result.status.code() == StatusCode::kInternal) {
      log.warn("gemm request id={} problem=\"{}\" failed: {}", request_id_, ToString(problem_),
               result.status.ToString());
    }
    if (!log.should_log(spdlog::level::debug)) return;
    const PhaseTimes& t = result.times;
    log.debug(
        "gemm request id={} problem=\"{}\" code={} backend={} device={} lane={} kernel={} "
        "stages={} limit={} decode_us={} queue_us={} plan_us={} stage_us={} h2d_us={} "
        "kernel_us={} d2h_us={} unstage_us={} total_us={}",
        request_id_, ToString(problem_), StatusCodeName(result.status.code()), result.backend,
        result.device, result.lane, result.plan.kernel(), result.plan.stages,
        Name(result.plan.limit), Micros(t.decode), Micros(t.queue), Micros(t.plan), Micros(t.stage),
        Micros(t.h2d), Micros(t.kernel), Micros(t.d2h), Micros(t.unstage), Micros(t.total));
  }

  GemmServiceImpl* const service_;
  const v1::GemmRequest* const request_;  // gRPC's, alive until OnDone
  v1::GemmResponse* const response_;      // likewise
  const SteadyClock::time_point received_ = SteadyClock::now();
  std::string request_id_;
  GemmProblem problem_;
  std::optional<RequestId> engine_id_;  // written by the handler, read by OnCancel
  std::atomic<bool> on_lane_{false};    // the product has, or had, a lane
  std::atomic<bool> replying_{false};   // Finish is about to be called, or was
  bool gave_up_waiting_ = false;        // written before Finish, read by OnDone
  bool cancelled_ = false;              // written by OnCancel, read by OnDone
};

GemmServiceImpl::GemmServiceImpl(Engine* engine, EngineObserver* observer, CallObserver* calls,
                                 int64_t max_message_bytes, spdlog::logger* log)
    : engine_(engine),
      observer_(observer),
      call_observer_(calls),
      max_message_bytes_(max_message_bytes),
      log_(log),
      id_prefix_(RandomPrefix()) {}

grpc::ServerUnaryReactor* GemmServiceImpl::Gemm(grpc::CallbackServerContext* context,
                                                const v1::GemmRequest* request,
                                                v1::GemmResponse* response) {
  auto* call = new Call(this, request, response);
  call->Start(ToSteady(context->deadline()));
  return call;
}

grpc::ServerBidiReactor<v1::GemmStreamRequest, v1::GemmStreamResponse>* GemmServiceImpl::GemmStream(
    grpc::CallbackServerContext*) {
  return RefuseBidi<v1::GemmStreamRequest, v1::GemmStreamResponse>(Unimplemented(
      "this server has no GemmStream; send operands inline to GemmService.Gemm, whose messages may "
      "have up to " +
      std::to_string(max_message_bytes_) + " bytes"));
}

bool GemmServiceImpl::WaitIdle(SteadyClock::time_point deadline) {
  MutexLock lock(mu_);
  while (calls_ > 0) {
    if (!idle_.WaitUntil(mu_, deadline)) return calls_ == 0;
  }
  return true;
}

void GemmServiceImpl::CallStarted() {
  MutexLock lock(mu_);
  ++calls_;
}

void GemmServiceImpl::CallEnded() {
  MutexLock lock(mu_);
  if (--calls_ == 0) idle_.NotifyAll();
}

std::string GemmServiceImpl::NewRequestId() {
  return fmt::format("{}-{:x}", id_prefix_, next_id_.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace gemmd
