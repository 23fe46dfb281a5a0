// Wire messages to the core's types and back, and all validation of requests: what leaves Decode*
// is safe to hand to the engine.
//
// Nothing here allocates in proportion to a size that a request claims. Operands stay where the
// message holds them: the views point into it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gemmd/v1/gemm.pb.h"
#include "gemmd/v1/server.pb.h"
#include "gemmd/v1/types.pb.h"
#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "proto/convert.h"
#include "server/engine/request.h"
#include "server/tuning/tuner.h"

namespace gemmd {

struct DecodedGemm {
  std::string request_id;  // empty: the caller chose none
  GemmProblem problem;     // ValidateProblem() is OK
  HostOperands operands;   // views into the request message; `d` is null
  PlanConstraints constraints;
  int64_t bytes = 0;         // of operands given and result
  int64_t result_bytes = 0;  // of those, the result
};

// What a GemmResponse may have besides the bytes of d.
inline constexpr int64_t kReplyOverheadBytes = 1024;

// The id that the caller chose, where it is valid: nothing else may reach a log. Empty: none is.
std::string ValidRequestId(const v1::GemmRequest& request);

// INVALID_ARGUMENT for what is malformed or inconsistent, OUT_OF_RANGE for a result of more than
// `max_result_bytes`, UNIMPLEMENTED for sources and destinations other than inline; with the field.
// The views are valid as long as `request` is.
StatusOr<DecodedGemm> DecodeGemm(const v1::GemmRequest& request, int64_t max_result_bytes);

struct DecodedExplain {
  GemmProblem problem;
  PlanConstraints constraints;
  int max_candidates = 0;
};
StatusOr<DecodedExplain> DecodeExplain(const v1::ExplainPlanRequest& request);

// Operands are packed. INVALID_ARGUMENT, with the field, also for more problems than one run takes.
struct DecodedTune {
  std::vector<GemmProblem> problems;
  bool served = false, calibrate = false;
  std::optional<Nanoseconds> budget;
};
StatusOr<DecodedTune> DecodeTune(const v1::TuneRequest& request);

struct DecodedStudy {
  std::vector<GemmProblem> problems;
  std::optional<int> row;  // into kKernelTable
  int max_stages = 0;      // 0: what fits
};
StatusOr<DecodedStudy> DecodeStudy(const v1::StudyRequest& request);
// The planner's refusal of StudyRequest.kernel, in that message's terms.
Status InTermsOfStudy(const Status& status);

struct DecodedProfile {
  GemmProblem problem;
  PlanConstraints constraints;
  Nanoseconds duration{0};  // above 0
};
StatusOr<DecodedProfile> DecodeProfile(const v1::ProfileRequest& request);

v1::Plan ToProto(const Plan& plan);
v1::ProfileResponse ToProto(const Profile& profile);
// Of `totals`, what Statistics has.
void EncodeStalls(const StallTotals& totals, v1::Statistics* out);
v1::StallCycles ToProto(const StallSample& stalls);
v1::TuneProgress ToProto(const TuneStep& step);
v1::StudyPoint ToProto(const StudyStep& step);
google::protobuf::Duration ToProto(Nanoseconds time);
google::protobuf::Duration SecondsToProto(double seconds);

v1::Execution EncodeExecution(const std::string& request_id, const GemmProblem& problem,
                              const GemmResult& result);

}  // namespace gemmd
