#include "server/rpc/tuning_calls.h"

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "server/rpc/codec.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/refuse.h"

namespace gemmd {
namespace {

constexpr size_t kMaxWaiting = 64;  // messages that the caller has not taken

// A run's messages on their way to its caller. The run's thread puts them in; gRPC, one at a time,
// takes them out. Lifetime: gRPC calls OnDone, which deletes it, after Finish, which comes after
// End(): so the run may use it until then.
template <typename Message>
class MessageStream final : public grpc::ServerWriteReactor<Message> {
 public:
  // Tells the caller at once that the call is taken: the first message may take long.
  explicit MessageStream(OpenCalls* open) : open_(open) {
    open_->Started();
    this->StartSendInitialMetadata();
  }

  const std::stop_source& stop() const { return stop_; }

  // Never blocks: in place of the last that waits when there is no room.
  void PutLatest(Message message) {
    {
      MutexLock lock(mu_);
      if (waiting_.size() >= kMaxWaiting) waiting_.pop_back();
      waiting_.push_back(std::move(message));
    }
    Advance();
  }

  // Waits for room, unless a stop is requested. False when there was none for `limit`.
  bool Put(Message message, std::chrono::milliseconds limit) {
    {
      const std::stop_callback wake(stop_.get_token(), [this] {
        MutexLock lock(mu_);
        room_.NotifyAll();
      });
      MutexLock lock(mu_);
      const SteadyClock::time_point until = SteadyClock::now() + limit;
      while (waiting_.size() >= kMaxWaiting && !stop_.stop_requested()) {
        if (!room_.WaitUntil(mu_, until) && waiting_.size() >= kMaxWaiting) return false;
      }
      if (waiting_.size() < kMaxWaiting) waiting_.push_back(std::move(message));
    }
    Advance();
    return true;
  }

  // Ends the call once its messages have left. The run's last use of it.
  void End(Status status) {
    {
      MutexLock lock(mu_);
      end_ = std::move(status);
    }
    Advance();
  }

 private:
  enum class Step { kNone, kWrite, kFinish };

  void OnWriteDone(bool ok) override {
    if (!ok) stop_.request_stop();
    {
      MutexLock lock(mu_);
      busy_ = false;
      if (!ok) waiting_.clear();
      room_.NotifyAll();
    }
    Advance();
  }

  void OnCancel() override { stop_.request_stop(); }

  void OnDone() override {
    OpenCalls* const open = open_;
    delete this;
    open->Ended();
  }

  Step Next() {
    MutexLock lock(mu_);
    if (busy_) return Step::kNone;
    if (waiting_.empty() && !end_) return Step::kNone;
    busy_ = true;  // for good, when nothing waits any more
    if (waiting_.empty()) return Step::kFinish;
    writing_ = std::move(waiting_.front());
    waiting_.pop_front();
    room_.NotifyAll();
    return Step::kWrite;
  }

  // Without the lock, which gRPC may want again at once: busy_ keeps others out.
  void Advance() {
    switch (Next()) {
      case Step::kNone: return;
      case Step::kWrite: return this->StartWrite(&writing_);
      case Step::kFinish: return this->Finish(ToGrpcStatus(TakeEnd()));
    }
  }

  Status TakeEnd() {
    MutexLock lock(mu_);
    return *std::move(end_);
  }

  OpenCalls* const open_;
  std::stop_source stop_;
  Message writing_;  // what gRPC sends, while busy_

  Mutex mu_;
  CondVar room_;
  std::deque<Message> waiting_ GUARDED_BY(mu_);
  std::optional<Status> end_ GUARDED_BY(mu_);
  bool busy_ GUARDED_BY(mu_) = false;  // gRPC writes, or finishes
};

// A run's one reply. Lifetime as MessageStream's.
class ReplyOfRun final : public grpc::ServerUnaryReactor {
 public:
  explicit ReplyOfRun(OpenCalls* open) : open_(open) { open_->Started(); }

  const std::stop_source& stop() const { return stop_; }
  // The run's last use of it, after which its caller has the response.
  void End(const Status& status) { Finish(ToGrpcStatus(status)); }

 private:
  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override {
    OpenCalls* const open = open_;
    delete this;
    open->Ended();
  }

  OpenCalls* const open_;
  std::stop_source stop_;
};

// Those given first, then the served ones that are not among them. None is an error unless
// `may_be_none`.
StatusOr<std::vector<GemmProblem>> WithServed(std::vector<GemmProblem> given, bool may_be_none,
                                              const Traffic& traffic) {
  const std::set<GemmProblem, ProblemLess> known(given.begin(), given.end());
  for (const GemmProblem& problem : traffic.MostServed()) {
    if (given.size() < kMaxTuningProblems && !known.contains(problem)) given.push_back(problem);
  }
  if (!given.empty() || may_be_none) return given;
  return FailedPrecondition("served: this server has served no product yet, and problems is empty");
}

}  // namespace

grpc::ServerWriteReactor<v1::TuneProgress>* TuneCall(const RpcTuning& tuning, OpenCalls* open,
                                                     const v1::TuneRequest& request) {
  StatusOr<DecodedTune> decoded = DecodeTune(request);
  if (!decoded.ok()) return RefuseWrite<v1::TuneProgress>(decoded.status());
  TuneRun run;
  run.problems = std::move(decoded->problems);
  if (decoded->served) {
    StatusOr<std::vector<GemmProblem>> all =
        WithServed(std::move(run.problems), decoded->calibrate, *tuning.traffic);
    if (!all.ok()) return RefuseWrite<v1::TuneProgress>(all.status());
    run.problems = *std::move(all);
  }
  run.calibrate = decoded->calibrate;
  run.budget = decoded->budget;
  auto stream = std::make_unique<MessageStream<v1::TuneProgress>>(open);
  run.stop = stream->stop();
  run.progress = [to = stream.get(), saves = tuning.tuner->saves()](const TuneStep& step) {
    v1::TuneProgress progress = ToProto(step);
    progress.set_tuning_file(saves);
    to->PutLatest(std::move(progress));
  };
  run.done = [to = stream.get()](Status status) { to->End(std::move(status)); };
  if (Status status = tuning.tuner->Tune(std::move(run)); !status.ok()) stream->End(status);
  return stream.release();
}

grpc::ServerWriteReactor<v1::StudyPoint>* StudyCall(const RpcTuning& tuning, OpenCalls* open,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::StudyRequest& request) {
  StatusOr<DecodedStudy> decoded = DecodeStudy(request);
  if (!decoded.ok()) return RefuseWrite<v1::StudyPoint>(decoded.status());
  StudyRun run;
  run.problems = std::move(decoded->problems);
  run.row = decoded->row;
  run.max_stages = decoded->max_stages;
  auto stream = std::make_unique<MessageStream<v1::StudyPoint>>(open);
  run.stop = stream->stop();
  run.point = [to = stream.get(), context, limit = tuning.reader_timeout](const StudyStep& step) {
    if (to->Put(ToProto(step), limit)) return;
    to->stop().request_stop();
    context->TryCancel();  // a write that nobody takes ends with the call alone
  };
  run.done = [to = stream.get()](const Status& status) { to->End(InTermsOfStudy(status)); };
  if (Status status = tuning.tuner->Study(std::move(run)); !status.ok()) {
    stream->End(InTermsOfStudy(status));
  }
  return stream.release();
}

grpc::ServerUnaryReactor* ProfileCall(const RpcTuning& tuning, OpenCalls* open,
                                      grpc::CallbackServerContext* context,
                                      const v1::ProfileRequest& request,
                                      v1::ProfileResponse* response) {
  StatusOr<DecodedProfile> decoded = DecodeProfile(request);
  if (!decoded.ok()) return FinishUnary(context, decoded.status());
  ProfileRun run;
  run.problems = {decoded->problem};
  run.constraints = decoded->constraints;
  run.duration = decoded->duration;
  auto reply = std::make_unique<ReplyOfRun>(open);
  run.stop = reply->stop();
  run.result = [response](const Profile& profile) { *response = ToProto(profile); };
  run.done = [to = reply.get()](const Status& status) { to->End(status); };
  if (Status status = tuning.tuner->Profile(std::move(run)); !status.ok()) reply->End(status);
  return reply.release();
}

}  // namespace gemmd
