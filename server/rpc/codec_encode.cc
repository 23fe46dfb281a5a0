#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "server/rpc/codec.h"

namespace gemmd {
namespace {

v1::PlanSource SourceToProto(PlanSource source) {
  switch (source) {
    case PlanSource::kModel: return v1::PLAN_SOURCE_MODEL;
    case PlanSource::kMeasured: return v1::PLAN_SOURCE_MEASURED;
    case PlanSource::kForced: return v1::PLAN_SOURCE_FORCED;
  }
  return v1::PLAN_SOURCE_UNSPECIFIED;
}

v1::StageLimit LimitToProto(StageLimit limit) {
  switch (limit) {
    case StageLimit::kNone: return v1::STAGE_LIMIT_NONE;
    case StageLimit::kSharedMemory: return v1::STAGE_LIMIT_SHARED_MEMORY;
    case StageLimit::kKTiles: return v1::STAGE_LIMIT_K_TILES;
    case StageLimit::kResidency: return v1::STAGE_LIMIT_RESIDENCY;
    case StageLimit::kModel: return v1::STAGE_LIMIT_MODEL;
    case StageLimit::kMeasured: return v1::STAGE_LIMIT_MEASURED;
    case StageLimit::kForced: return v1::STAGE_LIMIT_FORCED;
  }
  return v1::STAGE_LIMIT_UNSPECIFIED;
}

constexpr int kMostRanges = 64;  // of a function, in a reply

int64_t Sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

using Reasons = google::protobuf::RepeatedPtrField<v1::StallSamples>;

void SortReasons(Reasons* reasons) {
  std::ranges::stable_sort(*reasons, std::greater<>(), &v1::StallSamples::samples);
}

void AddReason(const std::string& reason, int64_t samples, Reasons* out) {
  if (samples <= 0) return;
  v1::StallSamples* const to = out->Add();
  to->set_reason(reason);
  to->set_samples(samples);
}

void EncodeReasons(const std::vector<std::string>& reasons, const std::vector<int64_t>& counts,
                   Reasons* out) {
  for (size_t i = 0; i < counts.size(); ++i) AddReason(reasons[i], counts[i], out);
  SortReasons(out);
}

void EncodeFunction(const FunctionSamples& function, const std::vector<std::string>& reasons,
                    v1::FunctionProfile* out) {
  std::vector<int64_t> all(reasons.size());
  std::vector<const RangeSamples*> ranges;
  for (const RangeSamples& range : function.ranges) {
    for (size_t i = 0; i < all.size(); ++i) all[i] += range.by_reason[i];
    if (Sum(range.by_reason) > 0) ranges.push_back(&range);
  }
  std::ranges::stable_sort(ranges, std::greater<>(),
                           [](const RangeSamples* range) { return Sum(range->by_reason); });
  out->set_kernel(std::string(SampledKernelName(function.kernel)));
  out->set_samples(Sum(all));
  EncodeReasons(reasons, all, out->mutable_reasons());
  for (const RangeSamples* range : ranges) {
    if (out->ranges_size() == kMostRanges) break;
    v1::ProgramRange* const to = out->add_ranges();
    to->set_first_offset(range->range.first);
    to->set_last_offset(range->range.last);
    to->set_samples(Sum(range->by_reason));
    to->set_note(std::string(Description(range->range.kind)));
    EncodeReasons(reasons, range->by_reason, to->mutable_reasons());
  }
}

}  // namespace

v1::ProfileResponse ToProto(const Profile& profile) {
  v1::ProfileResponse out;
  *out.mutable_plan() = ToProto(profile.plan);
  *out.mutable_median() = SecondsToProto(profile.median_seconds);
  for (const FunctionSamples& function : profile.samples.functions) {
    EncodeFunction(function, profile.reasons, out.add_functions());
    if (out.functions().rbegin()->samples() == 0) out.mutable_functions()->RemoveLast();
  }
  std::ranges::stable_sort(*out.mutable_functions(), std::greater<>(),
                           &v1::FunctionProfile::samples);
  out.set_dropped_samples(profile.samples.dropped);
  return out;
}

void EncodeStalls(const StallTotals& totals, v1::Statistics* out) {
  out->set_pc_sampling_up(totals.up);
  *out->mutable_pc_sampled() = ToProto(totals.sampled);
  int last = -1;
  for (const auto& [key, samples] : totals.samples) {  // by kernel
    const auto& [kernel, reason] = key;
    if (kernel != last) {
      out->add_stall_samples()->set_kernel(std::string(SampledKernelName(kernel)));
    }
    last = kernel;
    Reasons* const reasons =
        out->mutable_stall_samples(out->stall_samples_size() - 1)->mutable_reasons();
    AddReason(reason, samples, reasons);
  }
  for (v1::KernelStallSamples& kernel : *out->mutable_stall_samples()) {
    SortReasons(kernel.mutable_reasons());
  }
}

google::protobuf::Duration ToProto(Nanoseconds time) {
  constexpr int64_t kNanosPerSecond = 1'000'000'000;
  google::protobuf::Duration out;
  out.set_seconds(time.count() / kNanosPerSecond);
  out.set_nanos(static_cast<int32_t>(time.count() % kNanosPerSecond));
  return out;
}

google::protobuf::Duration SecondsToProto(double seconds) {
  constexpr double kMaxSeconds = 9.0e9;  // stays within 64 bits of nanoseconds
  const double clamped = std::isfinite(seconds) ? std::min(seconds, kMaxSeconds) : kMaxSeconds;
  return ToProto(Nanoseconds(std::llround(clamped * 1e9)));
}

v1::TuneProgress ToProto(const TuneStep& step) {
  v1::TuneProgress out;
  for (const DeviceCalibration& found : step.calibrations) {
    v1::DeviceCalibration* const to = out.add_calibrations();
    to->set_ordinal(found.ordinal);
    to->set_device(found.device);
    *to->mutable_calibration() = ToProto(found.calibration);
  }
  out.set_done(step.done);
  out.set_total(step.total);
  out.set_saved(step.saved);
  if (!step.problem) return out;
  *out.mutable_problem() = ToProto(*step.problem);
  if (step.best) *out.mutable_best() = ToProto(*step.best);
  *out.mutable_time_left() = SecondsToProto(step.seconds_left);
  return out;
}

v1::StudyPoint ToProto(const StudyStep& step) {
  const PlanTiming& timing = step.timing;
  v1::StudyPoint out;
  *out.mutable_problem() = ToProto(step.problem);
  *out.mutable_plan() = ToProto(step.plan);
  *out.mutable_median() = SecondsToProto(timing.median_seconds);
  *out.mutable_spread() = SecondsToProto(timing.p95_seconds - timing.p5_seconds);
  if (timing.stalls.measured) *out.mutable_stalls() = ToProto(timing.stalls);
  return out;
}

v1::Plan ToProto(const Plan& plan) {
  v1::Plan out;
  out.set_kernel(std::string(plan.kernel()));
  out.set_stages(plan.stages);
  out.set_split_k(plan.split_k);
  out.set_source(SourceToProto(plan.source));
  out.set_limit(LimitToProto(plan.limit));
  out.set_resident_blocks(plan.resident_blocks);
  out.set_smem_bytes(plan.smem_bytes);
  if (plan.predicted_seconds > 0) *out.mutable_predicted() = SecondsToProto(plan.predicted_seconds);
  if (plan.measured_seconds > 0) *out.mutable_measured() = SecondsToProto(plan.measured_seconds);
  out.set_pair(plan.pair);
  out.set_registers(plan.registers_per_thread);
  out.set_waves(plan.waves);
  return out;
}

v1::StallCycles ToProto(const StallSample& stalls) {
  v1::StallCycles out;
  out.set_wait_full(stalls.wait_full);
  out.set_wait_empty(stalls.wait_empty);
  out.set_mainloop(stalls.mainloop);
  out.set_epilogue(stalls.epilogue);
  out.set_k_tiles(stalls.k_tiles);
  return out;
}

v1::Execution EncodeExecution(const std::string& request_id, const GemmProblem& problem,
                              const GemmResult& result) {
  v1::Execution out;
  out.set_request_id(request_id);
  out.set_backend(result.backend);
  out.set_device(result.device);
  out.set_lane(result.lane);
  *out.mutable_plan() = ToProto(result.plan);
  v1::PhaseDurations& phases = *out.mutable_phases();
  *phases.mutable_decode() = ToProto(result.times.decode);
  *phases.mutable_queue() = ToProto(result.times.queue);
  *phases.mutable_plan() = ToProto(result.times.plan);
  *phases.mutable_stage() = ToProto(result.times.stage);
  *phases.mutable_h2d() = ToProto(result.times.h2d);
  *phases.mutable_kernel() = ToProto(result.times.kernel);
  *phases.mutable_d2h() = ToProto(result.times.d2h);
  *phases.mutable_unstage() = ToProto(result.times.unstage);
  *phases.mutable_total() = ToProto(result.times.total);
  if (result.stalls.measured) *out.mutable_stalls() = ToProto(result.stalls);
  out.set_flops(problem.flops());
  return out;
}

}  // namespace gemmd
