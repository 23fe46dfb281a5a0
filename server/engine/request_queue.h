// The engine's waiting room: first come, first served, with every deadline in order.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "server/engine/observer.h"
#include "server/engine/request.h"

namespace gemmd {

// A handle by which an admitted request can be cancelled. Copyable, cheap, valid for ever.
using RequestId = uint64_t;

struct QueuedRequest {
  std::unique_ptr<GemmRequest> request;
  SteadyClock::time_point admitted;
  uint64_t backends = 0;  // bit i: the engine's backend i can run it
};

class RequestQueue {  // Not thread-safe: the engine's lock guards it.
 public:
  RequestQueue(int max_requests, int64_t max_bytes)
      : max_requests_(max_requests), max_bytes_(max_bytes) {}

  // Requests and their bytes, those that only have a place reserved included.
  int size() const { return reserved_ + static_cast<int>(entries_.size()); }
  int64_t bytes() const { return bytes_; }

  // Counts a request that Push will bring. RESOURCE_EXHAUSTED when a limit stands against it, with
  // `retry_after` unless the request alone is above the limit.
  std::optional<Refusal> Reserve(int64_t bytes, std::chrono::milliseconds retry_after);
  // Takes up the place that Reserve(entry.request->bytes) made. `id` is above every earlier one.
  void Push(RequestId id, QueuedRequest entry);

  // Whether anything can be taken.
  bool empty() const { return entries_.empty(); }
  // Precondition of both: !empty().
  RequestId front_id() const { return entries_.begin()->first; }
  const QueuedRequest& front() const { return entries_.begin()->second; }

  // SteadyClock::time_point::max() when nothing that waits has a deadline.
  SteadyClock::time_point earliest_deadline() const;

  // nullopt when `id` does not wait here.
  std::optional<QueuedRequest> Take(RequestId id);
  // Those whose deadline is at or before `now`, earliest first.
  std::vector<QueuedRequest> TakeExpired(SteadyClock::time_point now);
  std::vector<QueuedRequest> TakeAll();

 private:
  const int max_requests_;
  const int64_t max_bytes_;
  std::map<RequestId, QueuedRequest> entries_;
  std::set<std::pair<SteadyClock::time_point, RequestId>> deadlines_;
  int reserved_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace gemmd
