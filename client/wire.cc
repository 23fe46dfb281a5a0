#include "client/wire.h"

#include <algorithm>
#include <cstring>

#include "google/rpc/error_details.pb.h"
#include "kernels/core/checked.h"
#include "kernels/core/utf8.h"

namespace gemmd::wire {

using gemmd::FromProto;
using gemmd::ToProto;

namespace {

using google::protobuf::Duration;

// A division rounds to the double nearest to the decimal, so that it is printed as short.
double Seconds(const Duration& d) { return static_cast<double>(d.seconds()) + d.nanos() / 1e9; }

// As the wire has them, to the nanosecond below; at least 0 and bounded by the caller.
void SetSeconds(double seconds, Duration* out) {
  const auto whole = static_cast<int64_t>(seconds);
  out->set_seconds(whole);
  out->set_nanos(static_cast<int32_t>(1e9 * (seconds - static_cast<double>(whole))));
}

// Saturates: a peer's nonsense must not overflow.
Nanoseconds ToNanoseconds(const Duration& d) {
  constexpr int64_t kMaxSeconds = 1'000'000'000;
  const int64_t seconds = std::clamp<int64_t>(d.seconds(), -kMaxSeconds, kMaxSeconds);
  return std::chrono::seconds(seconds) + Nanoseconds(d.nanos());
}

// "STAGE_LIMIT_SHARED_MEMORY" -> "shared_memory". Values that this client does not know keep their
// number, so that a newer server's answer is still shown.
std::string Word(const std::string& name, std::string_view prefix, int number) {
  if (name.size() <= prefix.size()) return std::to_string(number);
  std::string word = name.substr(prefix.size());
  for (char& ch : word) {
    if (ch >= 'A' && ch <= 'Z') ch = static_cast<char>(ch - 'A' + 'a');
  }
  return word;
}

StallSample FromProto(const v1::StallCycles& stalls) {
  return {.measured = true,
          .wait_full = stalls.wait_full(),
          .wait_empty = stalls.wait_empty(),
          .mainloop = stalls.mainloop(),
          .epilogue = stalls.epilogue(),
          .k_tiles = stalls.k_tiles()};
}

// Counts below 0 are nonsense, and taken for 0.
int64_t Samples(int64_t count) { return std::max<int64_t>(0, count); }

std::vector<ClientStallSamples> FromProto(
    const google::protobuf::RepeatedPtrField<v1::StallSamples>& reasons) {
  std::vector<ClientStallSamples> out;
  for (const v1::StallSamples& r : reasons) out.push_back({r.reason(), Samples(r.samples())});
  return out;
}

PhaseTimes FromProto(const v1::PhaseDurations& phases) {
  return {.decode = ToNanoseconds(phases.decode()),
          .queue = ToNanoseconds(phases.queue()),
          .plan = ToNanoseconds(phases.plan()),
          .stage = ToNanoseconds(phases.stage()),
          .h2d = ToNanoseconds(phases.h2d()),
          .kernel = ToNanoseconds(phases.kernel()),
          .d2h = ToNanoseconds(phases.d2h()),
          .unstage = ToNanoseconds(phases.unstage()),
          .total = ToNanoseconds(phases.total())};
}

}  // namespace

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) details.Clear();
  std::string field;
  std::optional<Milliseconds> retry_after;
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry_info;
    if (detail.UnpackTo(&bad_request) && bad_request.field_violations_size() > 0) {
      field = bad_request.field_violations(0).field();
    } else if (detail.UnpackTo(&retry_info)) {
      const Nanoseconds delay = std::max(Nanoseconds(0), ToNanoseconds(retry_info.retry_delay()));
      retry_after = std::chrono::ceil<Milliseconds>(delay);
    }
  }
  Status result = Status(static_cast<StatusCode>(status.error_code()), status.error_message())
                      .WithField(std::move(field));
  if (retry_after) return std::move(result).WithRetryAfter(*retry_after);
  return result;
}

Status CheckText(const std::string& field, std::string_view text) {
  if (IsUtf8(text)) return OkStatus();
  return InvalidArgument(field, field + " is not UTF-8, as all text of a request must be");
}

Status CheckText(const CallOptions& options) {
  RETURN_IF_ERROR(CheckText("request_id", options.request_id));
  return CheckText("kernel", options.kernel);
}

void ToProto(const CallOptions& options, v1::PlanOptions* out) {
  out->set_kernel(options.kernel);
  out->set_stages(options.stages);
  out->set_split_k(options.split_k);
}

ClientPlan FromProto(const v1::Plan& plan) {
  return {.kernel = plan.kernel(),
          .stages = plan.stages(),
          .split_k = plan.split_k(),
          .source = Word(v1::PlanSource_Name(plan.source()), "PLAN_SOURCE_", plan.source()),
          .limit = Word(v1::StageLimit_Name(plan.limit()), "STAGE_LIMIT_", plan.limit()),
          .resident_blocks = plan.resident_blocks(),
          .smem_bytes = plan.smem_bytes(),
          .predicted_seconds = Seconds(plan.predicted()),
          .measured_seconds = Seconds(plan.measured()),
          .pair = plan.pair(),
          .registers = plan.registers(),
          .waves = plan.waves()};
}

ClientResult FromProto(const v1::Execution& execution) {
  ClientResult result;
  result.request_id = execution.request_id();
  result.backend = execution.backend();
  result.device = execution.device();
  result.lane = execution.lane();
  result.plan = FromProto(execution.plan());
  result.phases = FromProto(execution.phases());
  if (execution.has_stalls()) result.stalls = FromProto(execution.stalls());
  result.flops = execution.flops();
  return result;
}

ClientServerInfo FromProto(const v1::ServerInfo& info) {
  ClientServerInfo out;
  out.version = info.version();
  out.build = info.build();
  out.backend = info.backend();
  out.backend_reason = info.backend_reason();
  for (const v1::Device& d : info.devices()) {
    out.devices.push_back({d.ordinal(), d.name(), d.uuid(), d.compute_capability(), d.sm_count(),
                           d.memory_bytes(), d.driver_version(), d.lanes()});
  }
  out.max_message_bytes = info.limits().max_message_bytes();
  out.max_queued_bytes = info.limits().max_queued_bytes();
  out.max_queued_requests = info.limits().max_queued_requests();
  out.max_extent = info.limits().max_extent();
  for (const v1::TypeSupport& t : info.types()) {
    const std::optional<DType> a = FromProto(t.type_a()), b = FromProto(t.type_b()),
                               d = FromProto(t.type_d()), accumulate = FromProto(t.accumulate());
    const std::optional<ComputeMode> mode = FromProto(t.compute_mode());
    if (!a || !b || !d || !mode) continue;  // what this client cannot name, it cannot send
    out.types.push_back({*a, *b, *d, *mode, accumulate.value_or(*d)});
  }
  out.started_unix_seconds = static_cast<double>(info.started().seconds());
  out.draining = info.draining();
  return out;
}

ClientKernel FromProto(const v1::Kernel& kernel) {
  return {.name = kernel.name(),
          .block_m = kernel.block_m(),
          .block_n = kernel.block_n(),
          .block_k = kernel.block_k(),
          .threads = kernel.threads(),
          .max_stages = kernel.max_stages(),
          .stage_bytes = kernel.stage_bytes(),
          .usable = kernel.usable()};
}

ClientStatistics FromProto(const v1::Statistics& s) {
  ClientStatistics out;
  out.uptime_seconds = Seconds(s.uptime());
  out.admitted = s.requests_admitted();
  out.completed = s.requests_completed();
  out.failed = s.requests_failed();
  out.rejected = s.requests_rejected();
  out.queued = s.queued();
  out.queued_bytes = s.queued_bytes();
  out.running = s.running();
  out.flops = s.flops();
  out.kernel_seconds = Seconds(s.kernel_time());
  for (const v1::KernelStatistics& k : s.kernels()) {
    out.kernels.push_back({k.kernel(), k.stages(), k.launches(), Seconds(k.kernel_time()),
                           k.has_stalls() ? FromProto(k.stalls()) : StallSample{}});
  }
  out.pc_sampling_up = s.pc_sampling_up();
  out.pc_sampled_seconds = Seconds(s.pc_sampled());
  for (const v1::KernelStallSamples& k : s.stall_samples()) {
    out.stall_samples.push_back({k.kernel(), FromProto(k.reasons())});
  }
  return out;
}

Serving FromProto(grpc::health::v1::HealthCheckResponse::ServingStatus status) {
  using Response = grpc::health::v1::HealthCheckResponse;
  switch (status) {
    case Response::SERVING: return Serving::kServing;
    case Response::NOT_SERVING: return Serving::kNotServing;
    case Response::SERVICE_UNKNOWN: return Serving::kServiceUnknown;
    default: return Serving::kUnknown;
  }
}

Status ToProto(const ClientTuneRequest& request, v1::TuneRequest* out) {
  constexpr double kMostSeconds = 7 * 24 * 3600;
  if (!(request.budget_seconds >= 0 && request.budget_seconds <= kMostSeconds)) {
    return InvalidArgument("budget", "budget=" + std::to_string(request.budget_seconds) +
                                         " s is not between 0 and 604800, 7 days");
  }
  for (const GemmProblem& problem : request.problems) *out->add_problems() = ToProto(problem);
  out->set_served(request.served);
  out->set_calibrate(request.calibrate);
  if (request.budget_seconds > 0) SetSeconds(request.budget_seconds, out->mutable_budget());
  return OkStatus();
}

void ToProto(const ClientStudyRequest& request, v1::StudyRequest* out) {
  for (const GemmProblem& problem : request.problems) *out->add_problems() = ToProto(problem);
  out->set_kernel(request.kernel);
  out->set_max_stages(request.max_stages);
}

Status ToProto(const ClientProfileRequest& request, v1::ProfileRequest* out) {
  const double seconds = request.duration_seconds;
  if (seconds != 0 && !(seconds >= 0.01 && seconds <= 60)) {
    return InvalidArgument(
        "duration", "duration=" + std::to_string(seconds) + " s is not between 0.01 and 60, nor 0");
  }
  *out->mutable_problem() = ToProto(request.problem);
  if (seconds > 0) SetSeconds(seconds, out->mutable_duration());
  return OkStatus();
}

ClientProfile FromProto(const v1::ProfileResponse& response) {
  ClientProfile profile{.plan = FromProto(response.plan()),
                        .median_seconds = Seconds(response.median()),
                        .functions = {},
                        .dropped_samples = Samples(response.dropped_samples())};
  for (const v1::FunctionProfile& f : response.functions()) {
    ClientFunctionProfile function{.kernel = f.kernel(),
                                   .samples = Samples(f.samples()),
                                   .reasons = FromProto(f.reasons()),
                                   .ranges = {}};
    for (const v1::ProgramRange& range : f.ranges()) {
      function.ranges.push_back({range.first_offset(), range.last_offset(),
                                 Samples(range.samples()), range.note(),
                                 FromProto(range.reasons())});
    }
    profile.functions.push_back(std::move(function));
  }
  return profile;
}

std::optional<GemmProblem> FromProto(const v1::Problem& in) {
  GemmProblem problem;
  problem.m = in.m();
  problem.n = in.n();
  problem.k = in.k();
  problem.batch = in.has_batch() ? in.batch() : 1;
  for (const int64_t extent : {problem.m, problem.n, problem.k, problem.batch}) {
    if (extent < 0 || extent > kMaxExtent) return std::nullopt;
  }
  const std::optional<DType> a = FromProto(in.type_a()), b = FromProto(in.type_b()),
                             d = FromProto(in.type_d());
  const std::optional<Op> op_a = FromProto(in.trans_a()), op_b = FromProto(in.trans_b());
  const std::optional<ComputeMode> mode = FromProto(in.compute_mode());
  if (!a || !b || !d || !op_a || !op_b || !mode) return std::nullopt;
  problem.type_a = *a;
  problem.type_b = *b;
  problem.type_d = *d;
  problem.op_a = *op_a;
  problem.op_b = *op_b;
  problem.mode = *mode;
  return WithPackedLayouts(problem);
}

ClientTuneProgress FromProto(const v1::TuneProgress& in) {
  ClientTuneProgress progress;
  for (const v1::DeviceCalibration& found : in.calibrations()) {
    progress.calibrations.push_back(
        {found.ordinal(), found.device(), FromProto(found.calibration())});
  }
  progress.done = in.done();
  progress.total = in.total();
  progress.tuning_file = in.tuning_file();
  progress.saved = in.saved();
  if (in.has_problem()) progress.problem = FromProto(in.problem());
  if (in.has_best()) progress.best = FromProto(in.best());
  if (in.has_time_left()) progress.left_seconds = Seconds(in.time_left());
  return progress;
}

StatusOr<ClientStudyPoint> FromProto(const v1::StudyPoint& in) {
  const std::optional<GemmProblem> problem = FromProto(in.problem());
  if (!problem) {
    return Internal("the server sent a measurement of a problem that this client cannot read");
  }
  ClientStudyPoint point;
  point.problem = *problem;
  point.plan = FromProto(in.plan());
  point.median_seconds = Seconds(in.median());
  point.spread_seconds = Seconds(in.spread());
  if (in.has_stalls()) point.stalls = FromProto(in.stalls());
  return point;
}

StatusOr<Operand> PlanOperand(std::string_view field, const MatrixLayout& layout, int64_t batch,
                              DType type, const std::byte* data, bool keep_padding) {
  Operand operand{
      .field = field, .layout = layout, .sent = layout, .batch = batch, .type = type, .data = data};
  const bool shared = layout.batch_stride == 0;
  // Matrices that overlap without padded rows are sent as they lie: packing would make them larger.
  const std::optional<int64_t> matrix = CheckedMul(layout.rows, layout.cols);
  const bool compact =
      layout.ld == layout.cols && matrix && (batch <= 1 || layout.batch_stride <= *matrix);
  if (!keep_padding && !compact) {
    operand.sent.ld = layout.cols;
    if (!shared && matrix) operand.sent.batch_stride = *matrix;
  }
  ASSIGN_OR_RETURN(operand.bytes, StorageBytes(operand.sent, batch, type, field));
  if (shared && batch > 1) operand.batch = 1;
  if (operand.bytes > 0 && data == nullptr) {
    const std::string name(field);
    return InvalidArgument(name,
                           name + " is null and holds " + std::to_string(operand.bytes) + " bytes");
  }
  return operand;
}

void Fill(const Operand& operand, v1::Matrix* out) {
  const MatrixLayout& from = operand.layout;
  const MatrixLayout& to = operand.sent;
  out->set_ld(to.ld);
  out->set_batch_stride(to.batch_stride);
  std::string* bytes = out->mutable_inline_();
  if (operand.bytes == 0) return;
  if (from == to) {
    bytes->assign(reinterpret_cast<const char*>(operand.data), static_cast<size_t>(operand.bytes));
    return;
  }
  const int64_t element = SizeOf(operand.type);
  bytes->reserve(static_cast<size_t>(operand.bytes));
  for (int64_t i = 0; i < operand.batch; ++i) {
    for (int64_t row = 0; row < from.rows; ++row) {
      const std::byte* start = operand.data + (i * from.batch_stride + row * from.ld) * element;
      bytes->append(reinterpret_cast<const char*>(start), static_cast<size_t>(from.cols * element));
    }
  }
}

}  // namespace gemmd::wire
