#include "server/engine/request_queue.h"

#include <string>

namespace gemmd {

std::optional<Refusal> RequestQueue::Reserve(int64_t bytes, std::chrono::milliseconds retry_after) {
  if (bytes > max_bytes_) {
    return Refusal{RejectReason::kQueueBytes,
                   ResourceExhausted("bytes=" + std::to_string(bytes) +
                                     " of operands and result are above the queue's limit of " +
                                     std::to_string(max_bytes_))};
  }
  if (size() >= max_requests_) {
    return Refusal{
        RejectReason::kQueueFull,
        ResourceExhausted("queue is full: " + std::to_string(size()) +
                          " requests wait, the limit is " + std::to_string(max_requests_))
            .WithRetryAfter(retry_after)};
  }
  if (bytes_ > max_bytes_ - bytes) {
    return Refusal{RejectReason::kQueueBytes,
                   ResourceExhausted("queue is full: bytes=" + std::to_string(bytes) + " and " +
                                     std::to_string(bytes_) + " that wait are above its limit of " +
                                     std::to_string(max_bytes_))
                       .WithRetryAfter(retry_after)};
  }
  ++reserved_;
  bytes_ += bytes;
  return std::nullopt;
}

void RequestQueue::Push(RequestId id, QueuedRequest entry) {
  --reserved_;
  deadlines_.emplace(entry.request->deadline, id);
  entries_.emplace_hint(entries_.end(), id, std::move(entry));
}

SteadyClock::time_point RequestQueue::earliest_deadline() const {
  return deadlines_.empty() ? SteadyClock::time_point::max() : deadlines_.begin()->first;
}

std::optional<QueuedRequest> RequestQueue::Take(RequestId id) {
  auto node = entries_.extract(id);
  if (node.empty()) return std::nullopt;
  const GemmRequest& request = *node.mapped().request;
  deadlines_.erase({request.deadline, id});
  bytes_ -= request.bytes;
  return std::move(node.mapped());
}

std::vector<QueuedRequest> RequestQueue::TakeExpired(SteadyClock::time_point now) {
  std::vector<QueuedRequest> expired;
  while (earliest_deadline() <= now && !deadlines_.empty()) {
    expired.push_back(*Take(deadlines_.begin()->second));
  }
  return expired;
}

std::vector<QueuedRequest> RequestQueue::TakeAll() {
  std::vector<QueuedRequest> all;
  while (!empty()) all.push_back(*Take(front_id()));
  return all;
}

}  // namespace gemmd
