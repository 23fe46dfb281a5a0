#include "server/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "kernels/core/mutex.h"
#include "server/engine/fleet.h"
#include "server/engine/retry.h"

namespace gemmd {
namespace {

int64_t Milliseconds(SteadyClock::duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

// The deadline may be any that a clock has: only one after its epoch is near enough to now for a
// difference.
std::string HowLate(SteadyClock::time_point deadline, SteadyClock::time_point now) {
  if (deadline < SteadyClock::time_point()) return "deadline passed long";
  return "deadline passed " + std::to_string(Milliseconds(now - deadline)) + " ms";
}

Status DeviceLost(const std::string& cause) {
  return Unavailable("device lost, the server must restart: " + cause)
      .WithRetryAfter(kRetryWhenAway);
}

Status ExpiredInQueue(const QueuedRequest& entry, SteadyClock::time_point now) {
  return DeadlineExceeded("deadline passed after " +
                          std::to_string(Milliseconds(now - entry.admitted)) +
                          " ms in the queue; the product was not started");
}

Status Cut(const std::string& what) {
  return Unavailable("the server stopped before the " + what).WithRetryAfter(kRetryWhenAway);
}

}  // namespace

class Engine::Impl {
 public:
  Impl(EngineOptions options, std::vector<Backend*> backends, EngineObserver* observer);
  ~Impl();

  StatusOr<RequestId> Submit(std::unique_ptr<GemmRequest> request);
  void Cancel(RequestId id);
  void StartDrain();
  bool WaitIdle(SteadyClock::time_point deadline);
  void CutQueue();

  Fleet& fleet() { return fleet_; }
  const Fleet& fleet() const { return fleet_; }
  bool draining() const;
  int queued_requests() const;
  int64_t queued_bytes() const;
  int running_requests() const;

 private:
  // A request with a lane, from its dispatcher to its completion.
  struct Flight {
    RequestId id = 0;
    QueuedRequest entry;
    Seat seat;
    Plan plan;
    Nanoseconds queue_time{0}, plan_time{0};
    std::stop_source stop;          // requested without mu_: a lane may end the product in it
    std::atomic<bool> cut = false;  // by the server's end, not by its caller
  };

  std::optional<Refusal> Judge(const GemmRequest& request, uint64_t* runnable) const;
  std::optional<Refusal> Reserve(const GemmRequest& request) EXCLUDES(mu_);
  RequestId NextId() EXCLUDES(mu_);
  RequestId Enqueue(QueuedRequest entry) EXCLUDES(mu_);

  void DispatchLoop() EXCLUDES(mu_);
  void ExpiryLoop() EXCLUDES(mu_);
  bool HeadMayStart() const REQUIRES(mu_);
  std::shared_ptr<Flight> NextFlight() EXCLUDES(mu_);
  void Run(const std::shared_ptr<Flight>& flight) EXCLUDES(mu_);
  static Status Stopped(const Flight& flight);
  Status Launch(const std::shared_ptr<Flight>& flight) EXCLUDES(mu_);
  void Finish(Flight& flight, LaneResult lane_result) EXCLUDES(mu_);
  // Before the lane's release, so that never more run than there are lanes.
  void LeaveLane(Flight& flight) EXCLUDES(mu_);

  void FailWaiting(const Status& status) EXCLUDES(mu_);
  void FailWaiting(QueuedRequest entry, Status status) EXCLUDES(mu_);
  void End(std::unique_ptr<GemmRequest> request, GemmResult result) EXCLUDES(mu_);

  Fleet fleet_;
  ObserverList nobody_{{}};
  EngineObserver* const observer_;

  mutable Mutex mu_;
  CondVar dispatch_cv_;  // HeadMayStart() may have become true, or stopping_
  CondVar expiry_cv_;    // the earliest deadline moved forward, or stopping_
  CondVar idle_cv_;      // unfinished_ reached 0
  RequestQueue queue_ GUARDED_BY(mu_);
  RequestId next_id_ GUARDED_BY(mu_) = 1;
  int unfinished_ GUARDED_BY(mu_) = 0;  // admitted, `done` has not returned
  std::map<RequestId, std::shared_ptr<Flight>> running_ GUARDED_BY(mu_);  // have a lane
  bool draining_ GUARDED_BY(mu_) = false;
  bool cut_ GUARDED_BY(mu_) = false;  // the queue was cut while draining
  bool stopping_ GUARDED_BY(mu_) = false;
  // One dispatcher at a time looks for the head's lane, so that nothing overtakes a head whose
  // memory is not free yet.
  bool matching_ GUARDED_BY(mu_) = false;
  // The head found no lane when so many leases had been released: it need not look again until the
  // count has grown.
  uint64_t releases_ GUARDED_BY(mu_) = 0;
  RequestId blocked_head_ GUARDED_BY(mu_) = 0;
  uint64_t blocked_at_ GUARDED_BY(mu_) = 0;

  std::vector<std::thread> threads_;  // dispatchers, then the one that expires
};

Engine::Impl::Impl(EngineOptions options, std::vector<Backend*> backends, EngineObserver* observer)
    : fleet_(std::move(backends)),
      observer_(observer != nullptr ? observer : &nobody_),
      queue_(options.max_queued_requests, options.max_queued_bytes) {
  fleet_.SetReleaseListener([this] {
    MutexLock lock(mu_);
    ++releases_;
    dispatch_cv_.NotifyOne();
  });
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int dispatchers =
      options.dispatchers > 0 ? options.dispatchers : std::max(1, std::min(fleet_.lanes(), cores));
  for (int i = 0; i < dispatchers; ++i) threads_.emplace_back([this] { DispatchLoop(); });
  threads_.emplace_back([this] { ExpiryLoop(); });
}

Engine::Impl::~Impl() {
  StartDrain();
  CutQueue();
  {
    MutexLock lock(mu_);
    while (unfinished_ > 0) idle_cv_.Wait(mu_);
    stopping_ = true;
    dispatch_cv_.NotifyAll();
    expiry_cv_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

// --- Admission ---

StatusOr<RequestId> Engine::Impl::Submit(std::unique_ptr<GemmRequest> request) {
  uint64_t runnable = 0;
  std::optional<Refusal> refusal = Judge(*request, &runnable);
  if (!refusal) refusal = Reserve(*request);
  if (refusal) {
    observer_->Rejected(refusal->reason);
    return std::move(refusal->status);
  }
  observer_->Admitted(*request);
  return Enqueue(
      {.request = std::move(request), .admitted = SteadyClock::now(), .backends = runnable});
}

// What can be said without the lock. Sets bit i of `runnable` where backend i can run it.
std::optional<Refusal> Engine::Impl::Judge(const GemmRequest& request, uint64_t* runnable) const {
  if (!fleet_.healthy())
    return Refusal{RejectReason::kDeviceLost, DeviceLost("no new work is taken")};
  const SteadyClock::time_point now = SteadyClock::now();
  if (request.deadline <= now) {
    return Refusal{RejectReason::kDeadline, DeadlineExceeded(HowLate(request.deadline, now) +
                                                             " before the request was admitted")};
  }
  return fleet_.CheckRunnable(request.problem, request.constraints, runnable);
}

std::optional<Refusal> Engine::Impl::Reserve(const GemmRequest& request) {
  MutexLock lock(mu_);
  if (draining_) return Refusal{RejectReason::kDraining, Draining()};
  if (!request.problem.empty()) {
    std::optional<Refusal> refusal = queue_.Reserve(request.bytes, kRetryWhenFull);
    if (refusal) return refusal;
  }
  ++unfinished_;
  return std::nullopt;
}

RequestId Engine::Impl::NextId() {
  MutexLock lock(mu_);
  return next_id_++;
}

RequestId Engine::Impl::Enqueue(QueuedRequest entry) {
  const RequestId id = NextId();
  if (entry.request->problem.empty()) {
    End(std::move(entry.request), GemmResult{});
    return id;
  }
  std::optional<QueuedRequest> cut;
  {
    MutexLock lock(mu_);
    const bool earliest = entry.request->deadline < queue_.earliest_deadline();
    queue_.Push(id, std::move(entry));
    if (cut_) cut = queue_.Take(id);
    if (earliest) expiry_cv_.NotifyOne();
    dispatch_cv_.NotifyOne();
  }
  if (cut) FailWaiting(*std::move(cut), Draining());
  return id;
}

// --- Dispatch ---

void Engine::Impl::DispatchLoop() {
  while (const std::shared_ptr<Flight> flight = NextFlight()) Run(flight);
}

bool Engine::Impl::HeadMayStart() const {
  if (matching_ || queue_.empty()) return false;
  return queue_.front_id() != blocked_head_ || blocked_at_ != releases_;
}

// Waits for a head and a lane for it; null when the engine stops.
std::shared_ptr<Engine::Impl::Flight> Engine::Impl::NextFlight() {
  for (;;) {
    RequestId id = 0;
    GemmProblem problem;
    uint64_t runnable = 0, releases = 0;
    {
      MutexLock lock(mu_);
      while (!stopping_ && !HeadMayStart()) dispatch_cv_.Wait(mu_);
      if (stopping_) return nullptr;
      matching_ = true;
      id = queue_.front_id();
      problem = queue_.front().request->problem;
      runnable = queue_.front().backends;
      releases = releases_;
    }
    if (!fleet_.healthy()) FailWaiting(DeviceLost("the request had not started"));
    // The head stays in the queue meanwhile, where it can be cancelled and can expire.
    std::optional<Seat> seat = fleet_.TryAcquire(problem, runnable);
    auto flight = std::make_shared<Flight>();
    {
      MutexLock lock(mu_);
      matching_ = false;
      if (!seat) {
        blocked_head_ = id;
        blocked_at_ = releases;
        continue;
      }
      std::optional<QueuedRequest> entry = queue_.Take(id);
      dispatch_cv_.NotifyOne();
      if (!entry) continue;  // the lane goes back once the lock is released
      flight->id = id;
      flight->entry = *std::move(entry);
      flight->seat = *std::move(seat);
      running_[id] = flight;
    }
    return flight;
  }
}

void Engine::Impl::Run(const std::shared_ptr<Flight>& flight) {
  Status status = Launch(flight);
  if (status.ok()) return;  // Finish() owns the flight's contents from here on
  if (!fleet_.backend(flight->seat.backend).healthy()) {
    status = DeviceLost(status.message());
    FailWaiting(status);
  }
  GemmResult result;
  result.status = std::move(status);
  result.times.queue = flight->queue_time;
  result.times.plan = flight->plan_time;
  LeaveLane(*flight);
  End(std::move(flight->entry.request), std::move(result));
}

Status Engine::Impl::Launch(const std::shared_ptr<Flight>& flight) {
  GemmRequest& request = *flight->entry.request;
  const SteadyClock::time_point taken = SteadyClock::now();
  flight->queue_time = taken - flight->entry.admitted;
  if (request.deadline <= taken) return ExpiredInQueue(flight->entry, taken);
  if (flight->stop.stop_requested()) return Stopped(*flight);

  StatusOr<Plan> plan =
      fleet_.planner(flight->seat.backend).PlanFor(request.problem, request.constraints);
  flight->plan_time = SteadyClock::now() - taken;
  if (!plan.ok()) return plan.status();
  flight->plan = *plan;

  ASSIGN_OR_RETURN(const int64_t bytes, ResultBytes(request.problem));
  HostOperands operands = request.operands;
  operands.d = request.allocate_result(bytes);
  if (operands.d == nullptr) {
    return ResourceExhausted("no memory for a result of " + std::to_string(bytes) + " bytes")
        .WithRetryAfter(kRetryWhenFull);
  }
  // The product may end, and its request be gone, before Submit returns.
  const GemmProblem problem = request.problem;
  return flight->seat.lease->Submit(
      problem, *plan, operands,
      [this, flight](LaneResult lane_result) { Finish(*flight, std::move(lane_result)); },
      flight->stop.get_token());
}

// Why a product was given up after its request got a lane.
Status Engine::Impl::Stopped(const Flight& flight) {
  if (flight.entry.request->deadline <= SteadyClock::now()) {
    return DeadlineExceeded("deadline passed while the product ran; it was stopped");
  }
  if (flight.cut) return Cut("product ended");
  return Cancelled("cancelled while the product ran; it was stopped");
}

void Engine::Impl::LeaveLane(Flight& flight) {
  std::shared_ptr<Flight> counted;  // outlives the lock
  {
    MutexLock lock(mu_);
    const auto it = running_.find(flight.id);
    counted = std::move(it->second);
    running_.erase(it);
  }
  flight.seat.lease.Reset();
}

void Engine::Impl::Finish(Flight& flight, LaneResult lane_result) {
  const Backend& backend = fleet_.backend(flight.seat.backend);
  GemmResult result;
  result.status = std::move(lane_result.status);
  if (result.status.code() == StatusCode::kCancelled) result.status = Stopped(flight);
  result.plan = flight.plan;
  result.backend = backend.name();
  result.device = backend.traits().ordinal;
  result.lane = flight.seat.lease->index();
  result.times = lane_result.times;
  result.times.queue = flight.queue_time;
  result.times.plan = flight.plan_time;
  result.stalls = lane_result.stalls;
  LeaveLane(flight);
  if (!backend.healthy()) {
    if (!result.status.ok()) result.status = DeviceLost(result.status.message());
    FailWaiting(DeviceLost("the request had not started"));
  }
  End(std::move(flight.entry.request), std::move(result));
}

// --- Ends ---

void Engine::Impl::ExpiryLoop() {
  for (;;) {
    std::vector<QueuedRequest> expired;
    {
      MutexLock lock(mu_);
      if (stopping_) return;
      const SteadyClock::time_point earliest = queue_.earliest_deadline();
      if (earliest == SteadyClock::time_point::max()) {
        expiry_cv_.Wait(mu_);
      } else if (earliest > SteadyClock::now()) {
        expiry_cv_.WaitUntil(mu_, earliest);
      }
      expired = queue_.TakeExpired(SteadyClock::now());
      if (!expired.empty()) dispatch_cv_.NotifyOne();  // there may be a new head
    }
    for (QueuedRequest& entry : expired) {
      Status status = ExpiredInQueue(entry, SteadyClock::now());
      FailWaiting(std::move(entry), std::move(status));
    }
  }
}

void Engine::Impl::Cancel(RequestId id) {
  std::optional<QueuedRequest> entry;
  std::shared_ptr<Flight> flight;
  {
    MutexLock lock(mu_);
    entry = queue_.Take(id);
    dispatch_cv_.NotifyOne();  // there may be a new head
    const auto running = running_.find(id);
    if (running != running_.end()) flight = running->second;
  }
  if (flight) flight->stop.request_stop();
  if (!entry) return;
  const SteadyClock::time_point now = SteadyClock::now();
  Status status = entry->request->deadline <= now ? ExpiredInQueue(*entry, now)
                                                  : Cancelled("cancelled while in the queue");
  FailWaiting(*std::move(entry), std::move(status));
}

void Engine::Impl::FailWaiting(const Status& status) {
  std::vector<QueuedRequest> entries;
  {
    MutexLock lock(mu_);
    entries = queue_.TakeAll();
  }
  for (QueuedRequest& entry : entries) FailWaiting(std::move(entry), status);
}

void Engine::Impl::FailWaiting(QueuedRequest entry, Status status) {
  GemmResult result;
  result.status = std::move(status);
  result.times.queue = SteadyClock::now() - entry.admitted;
  End(std::move(entry.request), std::move(result));
}

void Engine::Impl::End(std::unique_ptr<GemmRequest> request, GemmResult result) {
  result.times.decode = request->decode;
  result.times.total = SteadyClock::now() - request->received;
  observer_->Completed(*request, result);
  request->done(std::move(result));
  request.reset();  // what its callbacks captured is free before the engine calls itself idle
  MutexLock lock(mu_);
  if (--unfinished_ == 0) idle_cv_.NotifyAll();
}

void Engine::Impl::StartDrain() {
  MutexLock lock(mu_);
  draining_ = true;
}

bool Engine::Impl::WaitIdle(SteadyClock::time_point deadline) {
  MutexLock lock(mu_);
  while (unfinished_ > 0) {
    if (!idle_cv_.WaitUntil(mu_, deadline)) return unfinished_ == 0;
  }
  return true;
}

void Engine::Impl::CutQueue() {
  std::vector<std::shared_ptr<Flight>> flights;
  {
    MutexLock lock(mu_);
    cut_ = draining_;
    for (const auto& [id, flight] : running_) flights.push_back(flight);
  }
  FailWaiting(Cut("request started"));
  for (const std::shared_ptr<Flight>& flight : flights) {
    flight->cut = true;
    flight->stop.request_stop();
  }
}

// --- Questions ---

bool Engine::Impl::draining() const {
  MutexLock lock(mu_);
  return draining_;
}

int Engine::Impl::queued_requests() const {
  MutexLock lock(mu_);
  return queue_.size();
}

int64_t Engine::Impl::queued_bytes() const {
  MutexLock lock(mu_);
  return queue_.bytes();
}

int Engine::Impl::running_requests() const {
  MutexLock lock(mu_);
  return static_cast<int>(running_.size());
}

Engine::Engine(EngineOptions options, std::vector<Backend*> backends, EngineObserver* observer)
    : options_(options), impl_(std::make_unique<Impl>(options, std::move(backends), observer)) {}
Engine::~Engine() = default;

StatusOr<RequestId> Engine::Submit(std::unique_ptr<GemmRequest> request) {
  return impl_->Submit(std::move(request));
}
void Engine::Cancel(RequestId id) { impl_->Cancel(id); }
void Engine::StartDrain() { impl_->StartDrain(); }
bool Engine::WaitIdle(SteadyClock::time_point deadline) { return impl_->WaitIdle(deadline); }
void Engine::CutQueue() { impl_->CutQueue(); }
StatusOr<Plan> Engine::Explain(const GemmProblem& problem,
                               const PlanConstraints& constraints) const {
  return impl_->fleet().PlanFor(problem, constraints);
}
TunedPlanner& Engine::planner(int backend) { return impl_->fleet().planner(backend); }
const TunedPlanner& Engine::planner(int backend) const {
  return std::as_const(*impl_).fleet().planner(backend);
}
bool Engine::healthy() const { return impl_->fleet().healthy(); }
bool Engine::draining() const { return impl_->draining(); }
int Engine::queued_requests() const { return impl_->queued_requests(); }
int64_t Engine::queued_bytes() const { return impl_->queued_bytes(); }
int Engine::running_requests() const { return impl_->running_requests(); }

}  // namespace gemmd
