#include "server/engine/call_observer.h"

namespace gemmd {

std::string_view Name(CancelPhase phase) {
  switch (phase) {
    case CancelPhase::kQueue: return "queue";
    case CancelPhase::kRun: return "run";
    case CancelPhase::kReply: return "reply";
  }
  return "queue";
}

}  // namespace gemmd
