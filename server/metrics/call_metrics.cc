#include "server/metrics/call_metrics.h"

#include <span>
#include <string>

namespace gemmd {
namespace {

using prometheus::BuildCounter;

// Those that calls of a kind are usually answered with.
constexpr StatusCode kCommonCodes[] = {
    StatusCode::kOk,          StatusCode::kCancelled,         StatusCode::kUnknown,
    StatusCode::kOutOfRange,  StatusCode::kInvalidArgument,   StatusCode::kDeadlineExceeded,
    StatusCode::kNotFound,    StatusCode::kResourceExhausted, StatusCode::kUnimplemented,
    StatusCode::kUnavailable, StatusCode::kInternal};
constexpr StatusCode kQuestionCodes[] = {
    StatusCode::kOk,           StatusCode::kCancelled,       StatusCode::kUnknown,
    StatusCode::kInternal,     StatusCode::kInvalidArgument, StatusCode::kResourceExhausted,
    StatusCode::kUnimplemented};
constexpr StatusCode kRunCodes[] = {
    StatusCode::kOk,          StatusCode::kCancelled,          StatusCode::kUnknown,
    StatusCode::kInternal,    StatusCode::kInvalidArgument,    StatusCode::kResourceExhausted,
    StatusCode::kUnavailable, StatusCode::kFailedPrecondition, StatusCode::kUnimplemented};
constexpr StatusCode kUnbuiltCodes[] = {StatusCode::kCancelled, StatusCode::kUnknown,
                                        StatusCode::kUnimplemented};

std::span<const StatusCode> CodesOf(CallKind kind) {
  switch (kind) {
    case CallKind::kProduct:
    case CallKind::kOther: return kCommonCodes;
    case CallKind::kQuestion: return kQuestionCodes;
    case CallKind::kRun: return kRunCodes;
    case CallKind::kUnbuilt: return kUnbuiltCodes;
  }
  return kUnbuiltCodes;
}

size_t Index(StatusCode code) { return static_cast<size_t>(code); }

}  // namespace

CallMetrics::CallMetrics(prometheus::Registry& registry) {
  auto& started = BuildCounter()
                      .Name("gemmd_requests_started_total")
                      .Help("Calls that arrived, refused and unimplemented ones included.")
                      .Register(registry);
  ended_family_ = &BuildCounter()
                       .Name("gemmd_requests_total")
                       .Help(
                           "Calls that ended, by the status code they were answered with; "
                           "CANCELLED also where no answer was possible.")
                       .Register(registry);
  for (size_t method = 0; method < kCallMethodCount; ++method) {
    const std::string name(kCallMethods[method].name);
    started_[method] = &started.Add({{"method", name}});
    for (const StatusCode code : CodesOf(kCallMethods[method].kind)) Ended(method, code);
  }
  auto& cancelled = BuildCounter()
                        .Name("gemmd_cancelled_total")
                        .Help(
                            "Admitted products whose caller gave them up, by cancelling, vanishing "
                            "or a deadline, by what the product was doing then.")
                        .Register(registry);
  for (const CancelPhase phase : kCancelPhases) {
    cancelled_[static_cast<size_t>(phase)] = &cancelled.Add({{"phase", std::string(Name(phase))}});
  }
}

prometheus::Counter& CallMetrics::Ended(size_t method, StatusCode code) {
  return ended_[method][Index(code)].Of(*ended_family_, [&] {
    return prometheus::Labels{{"method", std::string(kCallMethods[method].name)},
                              {"code", std::string(StatusCodeName(code))}};
  });
}

void CallMetrics::CallStarted(int method) { started_[static_cast<size_t>(method)]->Increment(); }

void CallMetrics::CallEnded(int method, StatusCode code) {
  const bool known = Index(code) < kCodes;
  Ended(static_cast<size_t>(method), known ? code : StatusCode::kUnknown).Increment();
}

void CallMetrics::ProductCancelled(CancelPhase phase) {
  cancelled_[static_cast<size_t>(phase)]->Increment();
}

}  // namespace gemmd
