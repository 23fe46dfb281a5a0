// What the wire reports of its calls. Implemented by server/metrics; the wire knows nothing of
// Prometheus.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

#include "kernels/core/status.h"

namespace gemmd {

struct CallMethod {
  std::string_view path;  // on the wire, without the leading '/'
  std::string_view name;  // metric label
  bool served;            // false: announced, and answers UNIMPLEMENTED
};

// Every method that is counted by its own name.
inline constexpr CallMethod kCallMethods[] = {
    {"gemmd.v1.GemmService/Gemm", "Gemm", true},
    {"gemmd.v1.GemmService/GemmStream", "GemmStream", false},
    {"gemmd.v1.ServerService/GetServerInfo", "GetServerInfo", true},
    {"gemmd.v1.ServerService/ListKernels", "ListKernels", true},
    {"gemmd.v1.ServerService/ExplainPlan", "ExplainPlan", true},
    {"gemmd.v1.ServerService/GetStatistics", "GetStatistics", true},
    {"gemmd.v1.ServerService/Tune", "Tune", true},
    {"gemmd.v1.ServerService/Study", "Study", true},
    {"gemmd.v1.ServerService/Profile", "Profile", false},
    {"gemmd.v1.TensorService/PutTensor", "PutTensor", false},
    {"gemmd.v1.TensorService/GetTensor", "GetTensor", false},
    {"gemmd.v1.TensorService/StatTensor", "StatTensor", false},
    {"gemmd.v1.TensorService/ListTensors", "ListTensors", false},
    {"gemmd.v1.TensorService/DeleteTensor", "DeleteTensor", false},
    {"gemmd.v1.SharedMemoryService/RegisterSharedMemory", "RegisterSharedMemory", false},
    {"gemmd.v1.SharedMemoryService/UnregisterSharedMemory", "UnregisterSharedMemory", false},
    {"gemmd.v1.SharedMemoryService/ListSharedMemory", "ListSharedMemory", false},
    {"grpc.health.v1.Health/Check", "HealthCheck", true},
    {"grpc.health.v1.Health/Watch", "HealthWatch", true},
    {"", "other", true},  // reflection, and whatever a caller makes up
};
inline constexpr int kCallMethodCount = static_cast<int>(std::size(kCallMethods));
inline constexpr int kOtherCall = kCallMethodCount - 1;

// Index into kCallMethods; kOtherCall for a path that is not there. `path` has no leading '/'.
constexpr int CallMethodOf(std::string_view path) {
  for (int method = 0; method < kOtherCall; ++method) {
    if (kCallMethods[method].path == path) return method;
  }
  return kOtherCall;
}

// What a product was doing when its caller gave it up.
enum class CancelPhase : uint8_t {
  kQueue,  // waited, and never ran
  kRun,    // was on a lane, which stopped or finished it for nobody
  kReply,  // had ended; the reply was not out
};
inline constexpr CancelPhase kCancelPhases[] = {CancelPhase::kQueue, CancelPhase::kRun,
                                                CancelPhase::kReply};
std::string_view Name(CancelPhase phase);  // "queue", "run", "reply"

class CallObserver {  // Thread-safe. No call may block.
 public:
  virtual ~CallObserver() = default;
  // Every call that the server hears of, refused and unimplemented ones included. `method` indexes
  // kCallMethods.
  virtual void CallStarted(int method) = 0;
  // Once for every call that started, before its status leaves; CANCELLED for one that ended
  // without a status of ours.
  virtual void CallEnded(int method, StatusCode code) = 0;
  // At most once for an admitted product, whether its caller cancelled, vanished, or set a deadline
  // that passed.
  virtual void ProductCancelled(CancelPhase phase) = 0;
};

}  // namespace gemmd
