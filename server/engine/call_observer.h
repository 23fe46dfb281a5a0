// What the wire reports of its calls. Implemented by server/metrics; the wire knows nothing of
// Prometheus.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

#include "kernels/core/status.h"

namespace gemmd {

// What a method does, and so which statuses its calls usually end with.
enum class CallKind : uint8_t {
  kProduct,
  kQuestion,  // about the server
  kRun,       // of tuning, a study or a profile
  kOther,
  kUnbuilt,  // announced, and answers UNIMPLEMENTED
};

struct CallMethod {
  std::string_view path;  // on the wire, without the leading '/'
  std::string_view name;  // metric label
  CallKind kind;
};

// Every method that is counted by its own name.
inline constexpr CallMethod kCallMethods[] = {
    {"gemmd.v1.GemmService/Gemm", "Gemm", CallKind::kProduct},
    {"gemmd.v1.GemmService/GemmStream", "GemmStream", CallKind::kUnbuilt},
    {"gemmd.v1.ServerService/GetServerInfo", "GetServerInfo", CallKind::kQuestion},
    {"gemmd.v1.ServerService/ListKernels", "ListKernels", CallKind::kQuestion},
    {"gemmd.v1.ServerService/ExplainPlan", "ExplainPlan", CallKind::kQuestion},
    {"gemmd.v1.ServerService/GetStatistics", "GetStatistics", CallKind::kQuestion},
    {"gemmd.v1.ServerService/Tune", "Tune", CallKind::kRun},
    {"gemmd.v1.ServerService/Study", "Study", CallKind::kRun},
    {"gemmd.v1.ServerService/Profile", "Profile", CallKind::kRun},
    {"gemmd.v1.TensorService/PutTensor", "PutTensor", CallKind::kUnbuilt},
    {"gemmd.v1.TensorService/GetTensor", "GetTensor", CallKind::kUnbuilt},
    {"gemmd.v1.TensorService/StatTensor", "StatTensor", CallKind::kUnbuilt},
    {"gemmd.v1.TensorService/ListTensors", "ListTensors", CallKind::kUnbuilt},
    {"gemmd.v1.TensorService/DeleteTensor", "DeleteTensor", CallKind::kUnbuilt},
    {"gemmd.v1.SharedMemoryService/RegisterSharedMemory", "RegisterSharedMemory",
     CallKind::kUnbuilt},
    {"gemmd.v1.SharedMemoryService/UnregisterSharedMemory", "UnregisterSharedMemory",
     CallKind::kUnbuilt},
    {"gemmd.v1.SharedMemoryService/ListSharedMemory", "ListSharedMemory", CallKind::kUnbuilt},
    {"grpc.health.v1.Health/Check", "HealthCheck", CallKind::kOther},
    {"grpc.health.v1.Health/Watch", "HealthWatch", CallKind::kOther},
    {"", "other", CallKind::kOther},  // reflection, and whatever a caller makes up
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
