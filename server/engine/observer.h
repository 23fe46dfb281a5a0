// What the engine reports. Implemented by server/metrics; the engine knows nothing of Prometheus.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "server/engine/request.h"

namespace gemmd {

enum class RejectReason : uint8_t {
  kInvalid,  // malformed or too large: refused before it reached the engine
  kQueueFull,
  kQueueBytes,
  kDraining,
  kMemory,       // more than this server ever has
  kDeadline,     // already past
  kUnsupported,  // types, mode, or plan constraints that no kernel meets
  kDeviceLost,
  kReplyBytes,  // results that callers have not taken yet fill their budget
};
inline constexpr RejectReason kRejectReasons[] = {
    RejectReason::kInvalid,     RejectReason::kQueueFull,  RejectReason::kQueueBytes,
    RejectReason::kDraining,    RejectReason::kMemory,     RejectReason::kDeadline,
    RejectReason::kUnsupported, RejectReason::kDeviceLost, RejectReason::kReplyBytes};
std::string_view Name(RejectReason reason);  // "queue_full", "queue_bytes", "draining", ...

// Why a request was not admitted.
struct Refusal {
  RejectReason reason;
  Status status;
};

class EngineObserver {  // Thread-safe. No call may block.
 public:
  virtual ~EngineObserver() = default;
  virtual void Admitted(const GemmRequest& request) = 0;
  virtual void Rejected(RejectReason reason) = 0;
  // Once for every admitted request, whatever its end (done, expired, cancelled, failed).
  // Before the request's `done`.
  virtual void Completed(const GemmRequest& request, const GemmResult& result) = 0;
};

// Tells several, in order.
class ObserverList : public EngineObserver {
 public:
  // The observers outlive the list.
  explicit ObserverList(std::vector<EngineObserver*> observers)
      : observers_(std::move(observers)) {}

  void Admitted(const GemmRequest& request) override;
  void Rejected(RejectReason reason) override;
  void Completed(const GemmRequest& request, const GemmResult& result) override;

 private:
  const std::vector<EngineObserver*> observers_;
};

}  // namespace gemmd
