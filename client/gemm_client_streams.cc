// The calls of GemmClient whose answer is a stream.
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "client/gemm_client_impl.h"

namespace gemmd {
namespace {

// Cancels a stream whose server has fallen silent; a deadline would end any stream. The first
// answer must come within the timeout. What follows may take any time, so that after half of it
// without a message the server is asked for its health, and must answer that in the other half,
// whatever it says.
class Watchdog {
 public:
  Watchdog(grpc::ClientContext* stream, grpc::health::v1::Health::StubInterface* health)
      : stream_(stream), health_(health) {}
  ~Watchdog() { End(); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void Start(Milliseconds timeout) {
    watcher_ = std::thread([this, timeout] { Watch(timeout); });
  }
  void Heard() {
    {
      MutexLock lock(mu_);
      ++heard_;
    }
    changed_.NotifyAll();
  }
  // Watches no more when it returns.
  void End() {
    {
      MutexLock lock(mu_);
      ended_ = true;
      if (probe_ != nullptr) probe_->TryCancel();
    }
    changed_.NotifyAll();
    if (watcher_.joinable()) watcher_.join();
  }
  // What it has cancelled the stream for, if it has.
  Status verdict() const {
    MutexLock lock(mu_);
    return verdict_;
  }

 private:
  enum class Wait : uint8_t { kHeard, kSilence, kEnded };

  void Watch(Milliseconds timeout) {
    const std::string limit = " within " + std::to_string(timeout.count()) + " ms";
    const Milliseconds quiet = timeout / 2;
    uint64_t seen = 0;
    Wait now = WaitForMore(timeout, &seen);
    if (now == Wait::kSilence) return GiveUp("no answer" + limit);
    while (now != Wait::kEnded) {
      now = WaitForMore(quiet, &seen);
      if (now != Wait::kSilence || Answers(timeout - quiet)) continue;
      now = WaitForMore(Milliseconds(0), &seen);
      if (now != Wait::kSilence) continue;
      return GiveUp("the server fell silent: no message and no answer to a health check" + limit);
    }
  }

  Wait WaitForMore(Milliseconds most, uint64_t* seen) {
    const SteadyClock::time_point deadline = SteadyClock::now() + most;
    MutexLock lock(mu_);
    while (!ended_ && heard_ == *seen && changed_.WaitUntil(mu_, deadline)) {
    }
    if (ended_) return Wait::kEnded;
    if (heard_ == *seen) return Wait::kSilence;
    *seen = heard_;
    return Wait::kHeard;
  }

  // A server that is gone answers nothing either, but then its stream ends by itself.
  bool Answers(Milliseconds timeout) {
    grpc::ClientContext context;
    Deadline(timeout).ApplyTo(&context);
    {
      MutexLock lock(mu_);
      if (ended_) return true;
      probe_ = &context;
    }
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status = health_->Check(&context, {}, &response);
    MutexLock lock(mu_);
    probe_ = nullptr;
    return status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
  }

  void GiveUp(const std::string& why) {
    {
      MutexLock lock(mu_);
      verdict_ = DeadlineExceeded(why);
    }
    stream_->TryCancel();
  }

  grpc::ClientContext* const stream_;
  grpc::health::v1::Health::StubInterface* const health_;
  mutable Mutex mu_;
  CondVar changed_;
  uint64_t heard_ GUARDED_BY(mu_) = 0;  // answers so far
  bool ended_ GUARDED_BY(mu_) = false;
  grpc::ClientContext* probe_ GUARDED_BY(mu_) = nullptr;  // of a health check under way
  Status verdict_ GUARDED_BY(mu_);
  std::thread watcher_;
};

// Who gives the first answer that a timeout waits for.
enum class Answer : uint8_t {
  kMessage,
  kHeaders,  // the server sends them once it has taken the call, and may work long for a message
};

// Hands the messages of a stream to `on_message` until that returns false (then OK), the server
// ends the stream, `stop` is requested (CANCELLED), or the server is silent for `timeout` (0: no
// limit), as Watchdog says. `start` makes the call.
template <typename Message, typename Start, typename OnMessage>
Status ReadStream(grpc::health::v1::Health::StubInterface* health, const Start& start,
                  Answer answer, Milliseconds timeout, const std::stop_token& stop,
                  const OnMessage& on_message) {
  grpc::ClientContext context;
  Watchdog watchdog(&context, health);
  if (timeout != Milliseconds(0)) {
    RETURN_IF_ERROR(CheckTimeout(timeout));
    watchdog.Start(timeout);
  }
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  const auto reader = start(&context);
  if (answer == Answer::kHeaders) {
    reader->WaitForInitialMetadata();
    watchdog.Heard();
  }
  Message message;
  while (reader->Read(&message)) {
    watchdog.Heard();
    if (on_message(message)) continue;
    context.TryCancel();
    while (reader->Read(&message)) {
    }
    (void)reader->Finish();
    return OkStatus();
  }
  const Status ended = wire::FromGrpc(reader->Finish());
  watchdog.End();
  if (ended.code() != StatusCode::kCancelled) return ended;
  RETURN_IF_ERROR(watchdog.verdict());
  return stop.stop_requested() ? Cancelled("the caller ended the call") : ended;
}

Status CheckProblems(const std::vector<GemmProblem>& problems) {
  for (size_t i = 0; i < problems.size(); ++i) {
    const Status valid = ValidateProblem(problems[i]);
    if (valid.ok()) continue;
    return InvalidArgument(valid.field(),
                           "problems[" + std::to_string(i) + "]: " + valid.message());
  }
  return OkStatus();
}

Status CheckSize(const google::protobuf::Message& request) {
  const size_t bytes = request.ByteSizeLong();
  if (bytes <= static_cast<size_t>(kMostMessageBytes)) return OkStatus();
  return OutOfRange("problems", "problems of " + std::to_string(bytes) +
                                    " bytes exceed the limit of " +
                                    std::to_string(kMostMessageBytes) + " bytes of one message");
}

}  // namespace

Status GemmClient::WatchHealth(const std::string& service,
                               const std::function<bool(Serving)>& on_status,
                               const CallOptions& options) {
  using Response = grpc::health::v1::HealthCheckResponse;
  RETURN_IF_ERROR(wire::CheckText("service", service));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  return ReadStream<Response>(
      impl_->health.get(),
      [&](grpc::ClientContext* context) { return impl_->health->Watch(context, request); },
      Answer::kMessage, options.timeout, {},
      [&](const Response& response) { return on_status(wire::FromProto(response.status())); });
}

Status GemmClient::Tune(const ClientTuneRequest& request,
                        const std::function<void(const ClientTuneProgress&)>& on_progress,
                        const std::stop_token& stop, const CallOptions& options) {
  RETURN_IF_ERROR(CheckProblems(request.problems));
  if (request.problems.empty() && !request.served && !request.calibrate) {
    return InvalidArgument("problems",
                           "problems is empty, and neither served nor calibrate is set");
  }
  v1::TuneRequest message;
  RETURN_IF_ERROR(wire::ToProto(request, &message));
  RETURN_IF_ERROR(CheckSize(message));
  return ReadStream<v1::TuneProgress>(
      impl_->health.get(),
      [&](grpc::ClientContext* context) { return impl_->server->Tune(context, message); },
      Answer::kHeaders, options.timeout, stop,
      [&](const v1::TuneProgress& progress) {
        on_progress(wire::FromProto(progress));
        return true;
      });
}

Status GemmClient::Study(const ClientStudyRequest& request,
                         const std::function<void(const ClientStudyPoint&)>& on_point,
                         const std::stop_token& stop, const CallOptions& options) {
  RETURN_IF_ERROR(CheckProblems(request.problems));
  if (request.problems.empty()) return InvalidArgument("problems", "problems is empty");
  if (request.max_stages < 0) {
    return InvalidArgument("max_stages",
                           "max_stages=" + std::to_string(request.max_stages) + " is below 0");
  }
  RETURN_IF_ERROR(wire::CheckText("kernel", request.kernel));
  v1::StudyRequest message;
  wire::ToProto(request, &message);
  RETURN_IF_ERROR(CheckSize(message));
  Status unread;
  const Status ended = ReadStream<v1::StudyPoint>(
      impl_->health.get(),
      [&](grpc::ClientContext* context) { return impl_->server->Study(context, message); },
      Answer::kHeaders, options.timeout, stop,
      [&](const v1::StudyPoint& point) {
        const StatusOr<ClientStudyPoint> read = wire::FromProto(point);
        if (read.ok()) {
          on_point(*read);
        } else {
          unread = read.status();
        }
        return read.ok();
      });
  return unread.ok() ? ended : unread;
}

}  // namespace gemmd
