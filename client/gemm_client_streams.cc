// The calls of GemmClient whose answer is a stream.
#include <thread>
#include <utility>

#include "client/gemm_client_impl.h"

namespace gemmd {
namespace {

// A stream's deadline would end the stream itself; this cancels it only while it has said nothing.
class FirstAnswer {
 public:
  explicit FirstAnswer(grpc::ClientContext* context) : context_(context) {}
  ~FirstAnswer() { Came(); }
  FirstAnswer(const FirstAnswer&) = delete;
  FirstAnswer& operator=(const FirstAnswer&) = delete;

  void MustComeWithin(Milliseconds timeout) {
    waiter_ = std::thread([this, deadline = SteadyClock::now() + timeout] {
      MutexLock lock(mu_);
      while (!came_ && came_cv_.WaitUntil(mu_, deadline)) {
      }
      if (came_) return;
      late_ = true;
      context_->TryCancel();
    });
  }
  void Came() {
    {
      MutexLock lock(mu_);
      came_ = true;
    }
    came_cv_.NotifyAll();
    if (waiter_.joinable()) waiter_.join();
  }
  bool late() const {
    MutexLock lock(mu_);
    return late_;
  }

 private:
  grpc::ClientContext* const context_;
  mutable Mutex mu_;
  CondVar came_cv_;
  bool came_ GUARDED_BY(mu_) = false;
  bool late_ GUARDED_BY(mu_) = false;
  std::thread waiter_;
};

// Who gives the first answer that a timeout waits for.
enum class Answer : uint8_t {
  kMessage,
  kHeaders,  // the server sends them once it has taken the call, and may work long for a message
};

// Hands the messages of a stream to `on_message` until that returns false (then OK), the server
// ends the stream, `stop` is requested (CANCELLED), or there is no first answer within `timeout`
// (0: no limit). `start` makes the call.
template <typename Message, typename Start, typename OnMessage>
Status ReadStream(const Start& start, Answer answer, Milliseconds timeout,
                  const std::stop_token& stop, const OnMessage& on_message) {
  grpc::ClientContext context;
  FirstAnswer first(&context);
  if (timeout != Milliseconds(0)) {
    RETURN_IF_ERROR(CheckTimeout(timeout));
    first.MustComeWithin(timeout);
  }
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  const auto reader = start(&context);
  if (answer == Answer::kHeaders) {
    reader->WaitForInitialMetadata();
    first.Came();
  }
  Message message;
  while (reader->Read(&message)) {
    first.Came();
    if (on_message(message)) continue;
    context.TryCancel();
    while (reader->Read(&message)) {
    }
    (void)reader->Finish();
    return OkStatus();
  }
  const Status ended = wire::FromGrpc(reader->Finish());
  if (ended.code() != StatusCode::kCancelled) return ended;
  if (first.late()) {
    return DeadlineExceeded("no answer within " + std::to_string(timeout.count()) + " ms");
  }
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
