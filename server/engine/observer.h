// What the engine reports. Implemented by server/metrics; the engine knows nothing of Prometheus.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/engine/request.h"

namespace gemmd {

enum class RejectReason : uint8_t { kQueueFull, kQueueBytes, kDraining, kMemory, kDeadline, kUnsupported };
std::string_view Name(RejectReason reason);  // "queue_full", "queue_bytes", "draining", ...

class EngineObserver {  // Thread-safe. No call may block.
 public:
  virtual ~EngineObserver() = default;
  virtual void Admitted(const GemmRequest& request) = 0;
  virtual void Rejected(RejectReason reason) = 0;
  // Once for every admitted request, whatever its end (done, expired, cancelled, failed).
  virtual void Completed(const GemmRequest& request, const GemmResult& result) = 0;
};

}  // namespace gemmd
