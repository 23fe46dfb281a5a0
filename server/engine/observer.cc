#include "server/engine/observer.h"

namespace gemmd {

std::string_view Name(RejectReason reason) {
  switch (reason) {
    case RejectReason::kInvalid: return "invalid";
    case RejectReason::kQueueFull: return "queue_full";
    case RejectReason::kQueueBytes: return "queue_bytes";
    case RejectReason::kDraining: return "draining";
    case RejectReason::kMemory: return "memory";
    case RejectReason::kReplyBytes: return "reply_bytes";
    case RejectReason::kDeadline: return "deadline";
    case RejectReason::kUnsupported: return "unsupported";
    case RejectReason::kDeviceLost: return "device_lost";
  }
  return "unsupported";
}

void ObserverList::Admitted(const GemmRequest& request) {
  for (EngineObserver* observer : observers_) observer->Admitted(request);
}

void ObserverList::Rejected(RejectReason reason) {
  for (EngineObserver* observer : observers_) observer->Rejected(reason);
}

void ObserverList::Completed(const GemmRequest& request, const GemmResult& result) {
  for (EngineObserver* observer : observers_) observer->Completed(request, result);
}

}  // namespace gemmd
