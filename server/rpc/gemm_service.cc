#include "server/rpc/gemm_service.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>

#include <grpc/support/time.h>
#include <spdlog/spdlog.h>

#include "server/engine/retry.h"
#include "server/rpc/codec.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/refuse.h"

namespace gemmd {
namespace {

std::string RandomPrefix() {
  std::random_device random;
  return fmt::format("{:08x}", random());
}

// The caller chooses the deadline, up to values that overflow any clock's time_point: the
// arithmetic is gRPC's own, which saturates, until it is within a year of now.
SteadyClock::time_point ToSteady(gpr_timespec deadline) {
  constexpr int64_t kFarAway = int64_t{365} * 24 * 3600;  // seconds
  const gpr_timespec left = gpr_time_sub(gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC),
                                         gpr_now(GPR_CLOCK_MONOTONIC));
  if (left.tv_sec > kFarAway) return SteadyClock::time_point::max();
  return SteadyClock::now() + std::chrono::seconds(std::max(left.tv_sec, -kFarAway)) +
         std::chrono::nanoseconds(left.tv_nsec);
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
  // `reply` is gRPC's and lives until OnDone.
  Call(GemmServiceImpl* service, grpc::ByteBuffer* reply) : service_(service), reply_(reply) {}

  // Empties `message`.
  void Start(grpc::ByteBuffer* message, SteadyClock::time_point deadline) {
    // Not an empty one: none. There is nothing to refuse, and nobody who would hear of it.
    if (!message->Valid()) {
      return Refuse(SteadyClock::now() < deadline
                        ? Cancelled("the call ended before its message had arrived")
                        : DeadlineExceeded("deadline passed before the message had arrived"));
    }
    StatusOr<DecodedGemm> decoded = Decode(message);
    if (!decoded.ok()) {
      service_->observer_->Rejected(RejectReason::kInvalid);
      return Refuse(decoded.status());
    }
    if (request_id_.empty()) request_id_ = service_->NewRequestId();
    problem_ = decoded->problem;
    if (const Status status = TakeReplyBytes(decoded->result_bytes); !status.ok()) {
      service_->observer_->Rejected(RejectReason::kReplyBytes);
      return Refuse(status);
    }

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
    if (reply_bytes_) service->replies_->GiveBack(*reply_bytes_);
    const bool counted = reply_bytes_.has_value();
    delete this;
    if (counted) service->open_calls_.Ended();
  }

  // Views into request_.
  StatusOr<DecodedGemm> Decode(grpc::ByteBuffer* message) {
    const size_t size = message->Length();
    if (!grpc::SerializationTraits<v1::GemmRequest>::Deserialize(message, &*request_).ok()) {
      return InvalidArgument(
          "request", "request of " + std::to_string(size) + " bytes is not a gemmd.v1.GemmRequest");
    }
    request_id_ = ValidRequestId(*request_);
    return DecodeGemm(*request_, service_->max_message_bytes_ - kReplyOverheadBytes);
  }

  Status TakeReplyBytes(int64_t bytes) {
    ReplyBudget& replies = *service_->replies_;
    // The engine refuses the call then; a drain does not wait for refusals.
    if (service_->engine_->draining()) return OkStatus();
    if (!replies.TryTake(bytes)) {
      return ResourceExhausted("d has " + std::to_string(bytes) + " bytes, results of open calls " +
                               std::to_string(replies.bytes()) + "; their limit is " +
                               std::to_string(replies.max_bytes()))
          .WithRetryAfter(kRetryWhenFull);
    }
    reply_bytes_ = bytes;
    service_->open_calls_.Started();
    return OkStatus();
  }

  void CountCancel(CancelPhase phase) { service_->call_observer_->ProductCancelled(phase); }

  // The result goes straight into the reply's own string.
  std::byte* AllocateResult(int64_t bytes) {
    on_lane_ = true;
    try {
      response_.mutable_d()->resize(static_cast<size_t>(bytes));
    } catch (const std::bad_alloc&) {
      return nullptr;
    } catch (const std::length_error&) {
      return nullptr;
    }
    return reinterpret_cast<std::byte*>(response_.mutable_d()->data());
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
    request_.reset();
    if (!result.status.ok()) {
      response_ = {};
      return Finish(ToGrpcStatus(result.status));
    }
    *response_.mutable_execution() = EncodeExecution(request_id_, problem_, result);
    bool own_buffer = false;
    const grpc::Status serialized =
        grpc::SerializationTraits<v1::GemmResponse>::Serialize(response_, reply_, &own_buffer);
    response_ = {};  // its bytes are in the buffer
    Finish(serialized);
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
  grpc::ByteBuffer* const reply_;
  std::optional<v1::GemmRequest> request_{std::in_place};  // until the product has ended
  v1::GemmResponse response_;
  std::optional<int64_t> reply_bytes_;  // taken from the budget until OnDone
  const SteadyClock::time_point received_ = SteadyClock::now();
  std::string request_id_;
  GemmProblem problem_;
  std::optional<RequestId> engine_id_;  // written by the handler, read by OnCancel
  std::atomic<bool> on_lane_{false};    // the product has, or had, a lane
  std::atomic<bool> replying_{false};   // Finish is about to be called, or was
  bool gave_up_waiting_ = false;        // written before Finish, read by OnDone
  bool cancelled_ = false;              // written by OnCancel, read by OnDone
};

GemmServiceImpl::GemmServiceImpl(Engine* engine, ReplyBudget* replies, EngineObserver* observer,
                                 CallObserver* calls, int64_t max_message_bytes,
                                 spdlog::logger* log)
    : engine_(engine),
      replies_(replies),
      observer_(observer),
      call_observer_(calls),
      max_message_bytes_(max_message_bytes),
      log_(log),
      id_prefix_(RandomPrefix()) {}

grpc::ServerUnaryReactor* GemmServiceImpl::Gemm(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  auto* call = new Call(this, response);
  // The buffer is not const where gRPC made it, and nobody else reads it: emptied once parsed, so
  // that its bytes are not held twice.
  call->Start(const_cast<grpc::ByteBuffer*>(request), ToSteady(context->raw_deadline()));
  return call;
}

grpc::ServerBidiReactor<v1::GemmStreamRequest, v1::GemmStreamResponse>* GemmServiceImpl::GemmStream(
    grpc::CallbackServerContext*) {
  return RefuseBidi<v1::GemmStreamRequest, v1::GemmStreamResponse>(Unimplemented(
      "this server has no GemmStream; send operands inline to GemmService.Gemm, whose messages may "
      "have up to " +
      std::to_string(max_message_bytes_) + " bytes"));
}

std::string GemmServiceImpl::NewRequestId() {
  return fmt::format("{}-{:x}", id_prefix_, next_id_.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace gemmd
