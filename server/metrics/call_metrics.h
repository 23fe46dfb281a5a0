// Counts the calls of the wire, by method and status code.
//
// The codes that a method usually answers with are there from the start, so that the first of each
// is seen as an increase. Any other becomes a series when it first occurs.
#pragma once

#include <array>
#include <cstddef>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/registry.h>

#include "server/engine/call_observer.h"
#include "server/metrics/lazy_counter.h"

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

  prometheus::Counter& Ended(size_t method, StatusCode code);

  std::array<prometheus::Counter*, kCallMethodCount> started_{};
  prometheus::Family<prometheus::Counter>* ended_family_ = nullptr;
  std::array<std::array<LazyCounter, kCodes>, kCallMethodCount> ended_;
  std::array<prometheus::Counter*, std::size(kCancelPhases)> cancelled_{};
};

}  // namespace gemmd
