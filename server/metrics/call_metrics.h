// Counts the calls of the wire, by method and status code.
//
// Every series is made at construction, and only those that can occur: a method that is not built
// never answers OK.
#pragma once

#include <array>
#include <cstddef>

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include "server/engine/call_observer.h"

namespace gemmd {

class CallMetrics : public CallObserver {  // Thread-safe.
 public:
  // Adds its series to `registry`, which outlives it. One a registry.
  explicit CallMetrics(prometheus::Registry& registry);

  void CallStarted(int method) override;
  void CallEnded(int method, StatusCode code) override;
  void ProductCancelled(CancelPhase phase) override;

 private:
  static constexpr size_t kCodes = 17;  // StatusCode 0 .. 16

  std::array<prometheus::Counter*, kCallMethodCount> started_{};
  // A code that the method has no series of shares that of UNKNOWN, so that none is lost.
  std::array<std::array<prometheus::Counter*, kCodes>, kCallMethodCount> ended_{};
  std::array<prometheus::Counter*, std::size(kCancelPhases)> cancelled_{};
};

}  // namespace gemmd
