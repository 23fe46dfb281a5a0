#include "server/rpc/codec.h"

#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/core/checked.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd {
namespace {

constexpr size_t kMaxRequestIdBytes = 64;
constexpr int kDefaultCandidates = 16;

std::string Str(int64_t value) { return std::to_string(value); }

// A caller's text as a message may repeat it: short, and without control characters.
std::string Quoted(std::string_view text) {
  constexpr size_t kMax = 64;
  std::string out = "\"";
  for (const char c : text.substr(0, kMax)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c < 0 ? '?' : c;
  }
  out += text.size() > kMax ? "...\"" : "\"";
  return out;
}

Status CheckRequestId(const std::string& id) {
  if (id.size() > kMaxRequestIdBytes) {
    return InvalidArgument("request_id", "request_id has " + Str(static_cast<int64_t>(id.size())) +
                                             " characters, the limit is 64");
  }
  for (const char c : id) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!allowed) {
      return InvalidArgument(
          "request_id", "request_id=" + Quoted(id) + " has a character outside [A-Za-z0-9._-]");
    }
  }
  return OkStatus();
}

// A field that this server does not know may change the result, so the request is refused rather
// than answered as though the field were not there.
Status CheckNoUnknownFields(const google::protobuf::Message& message, const std::string& name) {
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  if (unknown.empty()) return OkStatus();
  return InvalidArgument(name, name + " has field number " + Str(unknown.field(0).number()) +
                                   ", which this server does not know (limit: gemmd.v1)");
}

template <typename Enum>
Status BadEnum(const std::string& field, Enum value, const char* type) {
  return InvalidArgument(field, field + "=" + Str(value) + " is not a value of " + type);
}

template <typename Core, typename Wire>
Status DecodeEnum(const std::string& field, Wire value, const char* type, Core* out) {
  const std::optional<Core> known = FromProto(value);
  if (!known) return BadEnum(field, value, type);
  *out = *known;
  return OkStatus();
}

Status DecodeTypes(const v1::Problem& in, GemmProblem* out) {
  const auto decode = [](const char* field, v1::DataType value, std::optional<DType> otherwise,
                         DType* type) -> Status {
    if (value == v1::DATA_TYPE_UNSPECIFIED && !otherwise) {
      return InvalidArgument(field, std::string(field) + " is missing: one of DataType's values");
    }
    const std::optional<DType> known =
        value == v1::DATA_TYPE_UNSPECIFIED ? otherwise : FromProto(value);
    if (!known) return BadEnum(field, value, "DataType");
    *type = *known;
    return OkStatus();
  };
  RETURN_IF_ERROR(decode("problem.type_a", in.type_a(), std::nullopt, &out->type_a));
  RETURN_IF_ERROR(decode("problem.type_b", in.type_b(), out->type_a, &out->type_b));
  RETURN_IF_ERROR(
      decode("problem.type_d", in.type_d(), DefaultResultType(out->type_a), &out->type_d));
  return DecodeEnum("problem.compute_mode", in.compute_mode(), "ComputeMode", &out->mode);
}

// Everything of GemmProblem but the layouts. Bias is set to the axis only when there is one.
Status DecodeScalars(const v1::Problem& in, bool has_bias, GemmProblem* out) {
  RETURN_IF_ERROR(CheckNoUnknownFields(in, "problem"));
  out->m = in.m();
  out->n = in.n();
  out->k = in.k();
  out->batch = in.has_batch() ? in.batch() : 1;
  RETURN_IF_ERROR(DecodeEnum("problem.trans_a", in.trans_a(), "Transpose", &out->op_a));
  RETURN_IF_ERROR(DecodeEnum("problem.trans_b", in.trans_b(), "Transpose", &out->op_b));
  RETURN_IF_ERROR(DecodeTypes(in, out));
  out->alpha = in.has_alpha() ? in.alpha() : 1.0;
  out->beta = in.beta();
  RETURN_IF_ERROR(DecodeEnum("problem.bias_axis", in.bias_axis(), "BiasAxis", &out->bias));
  if (!has_bias) out->bias = BiasAxis::kNone;
  RETURN_IF_ERROR(DecodeEnum("problem.activation", in.activation(), "Activation", &out->act));
  out->deterministic = in.deterministic();
  return OkStatus();
}

struct Strides {
  int64_t ld = 0;                            // 0: the row length
  std::optional<int64_t> batch_stride = {};  // absent: rows * ld
};

// A default stride that overflows saturates; ValidateProblem refuses what then does not fit.
MatrixLayout Layout(int64_t rows, int64_t cols, const Strides& strides) {
  const int64_t ld = strides.ld == 0 ? cols : strides.ld;
  const int64_t packed = CheckedMul(rows, ld).value_or(std::numeric_limits<int64_t>::max());
  return {
      .rows = rows, .cols = cols, .ld = ld, .batch_stride = strides.batch_stride.value_or(packed)};
}

void SetLayouts(const Strides& a, const Strides& b, const Strides& c, GemmProblem* p) {
  p->a = p->op_a == Op::kN ? Layout(p->m, p->k, a) : Layout(p->k, p->m, a);
  p->b = p->op_b == Op::kN ? Layout(p->k, p->n, b) : Layout(p->n, p->k, b);
  p->c = Layout(p->m, p->n, c);
}

Strides StridesOf(const v1::Matrix& in) {
  Strides out{.ld = in.ld()};
  if (in.has_batch_stride()) out.batch_stride = in.batch_stride();
  return out;
}

// The bytes of an operand that came inline; null when there is none and none is `required`.
StatusOr<const std::byte*> InlineOperand(const std::string& name, const v1::Matrix& in,
                                         int64_t expected_bytes, const std::string& formula,
                                         bool required, const std::string& reader,
                                         int64_t* total_bytes) {
  switch (in.source_case()) {
    case v1::Matrix::kInline: break;
    case v1::Matrix::SOURCE_NOT_SET:
      if (!required) return static_cast<const std::byte*>(nullptr);
      return InvalidArgument(
          name, name + " is missing: " + reader + "; expected " + Str(expected_bytes) + " bytes");
    case v1::Matrix::kTensor:
      return Unimplemented(name + ".tensor: this server has no resident tensors; send " + name +
                           ".inline")
          .WithField(name + ".tensor");
    case v1::Matrix::kSharedMemory:
      return Unimplemented(name + ".shared_memory: this server has no shared memory; send " + name +
                           ".inline")
          .WithField(name + ".shared_memory");
    case v1::Matrix::kStreamed:
      return Unimplemented(name + ".streamed: this server has no GemmStream; send " + name +
                           ".inline")
          .WithField(name + ".streamed");
  }
  const std::string& bytes = in.inline_();
  const auto size = static_cast<int64_t>(bytes.size());
  if (size != expected_bytes) {
    return InvalidArgument(name, name + " has " + Str(size) + " bytes, expected " +
                                     Str(expected_bytes) + " = " + formula);
  }
  *total_bytes += size;
  return reinterpret_cast<const std::byte*>(bytes.data());
}

std::string Formula(const MatrixLayout& layout, int64_t batch, DType type) {
  if (layout.rows == 0 || layout.cols == 0 || batch == 0) return "an empty matrix";
  std::string text = "((" + Str(layout.rows) + "-1)*" + Str(layout.ld) + " + " + Str(layout.cols);
  if (batch > 1) text += " + (" + Str(batch) + "-1)*" + Str(layout.batch_stride);
  return text + ")*" + Str(SizeOf(type));
}

Status DecodeMatrix(const std::string& name, bool present, const v1::Matrix& in,
                    const MatrixLayout& layout, int64_t batch, DType type, bool required,
                    const std::string& reader, const std::byte** data, int64_t* total_bytes) {
  if (present) RETURN_IF_ERROR(CheckNoUnknownFields(in, name));
  ASSIGN_OR_RETURN(const int64_t expected, StorageBytes(layout, batch, type, name));
  ASSIGN_OR_RETURN(*data, InlineOperand(name, in, expected, Formula(layout, batch, type), required,
                                        reader, total_bytes));
  return OkStatus();
}

Status DecodeBias(const v1::Matrix& in, const GemmProblem& problem, DecodedGemm* out) {
  RETURN_IF_ERROR(CheckNoUnknownFields(in, "bias"));
  const int64_t length = problem.bias_length();
  if (in.ld() != 0 && in.ld() < length) {
    return InvalidArgument("bias.ld",
                           "bias.ld=" + Str(in.ld()) + " is below its row length " + Str(length));
  }
  if (in.has_batch_stride() && in.batch_stride() != 0) {
    return InvalidArgument("bias.batch_stride",
                           "bias.batch_stride=" + Str(in.batch_stride()) +
                               "; one bias serves the whole batch, the limit is 0");
  }
  const int64_t expected = length * SizeOf(problem.type_d);  // length <= kMaxExtent
  ASSIGN_OR_RETURN(
      out->operands.bias,
      InlineOperand("bias", in, expected, Str(length) + "*" + Str(SizeOf(problem.type_d)), true,
                    "a bias without a source adds nothing", &out->bytes));
  return OkStatus();
}

StatusOr<PlanConstraints> DecodePlanOptions(const v1::PlanOptions& in) {
  PlanConstraints out;
  RETURN_IF_ERROR(CheckNoUnknownFields(in, "plan"));
  if (!in.kernel().empty()) {
    const int row = RowByName(in.kernel());
    if (row < 0) {
      return InvalidArgument("plan.kernel", "plan.kernel=" + Quoted(in.kernel()) +
                                                " is not a kernel; ListKernels names all " +
                                                Str(kKernelRows));
    }
    out.row = row;
  }
  if (in.stages() < 0) {
    return InvalidArgument("plan.stages", "plan.stages=" + Str(in.stages()) + " is below 0");
  }
  if (in.split_k() < 0) {
    return InvalidArgument("plan.split_k", "plan.split_k=" + Str(in.split_k()) + " is below 0");
  }
  if (in.stages() > 0) out.stages = in.stages();
  if (in.split_k() > 0) out.split_k = in.split_k();
  return out;
}

Status CheckOutput(const v1::Output& output) {
  switch (output.destination_case()) {
    case v1::Output::DESTINATION_NOT_SET: return CheckNoUnknownFields(output, "output");
    case v1::Output::kNewTensor:
      return Unimplemented(
                 "output.new_tensor: this server has no resident tensors; leave output unset for "
                 "the result in the reply")
          .WithField("output.new_tensor");
    case v1::Output::kSharedMemory:
      return Unimplemented(
                 "output.shared_memory: this server has no shared memory; leave output unset for "
                 "the result in the reply")
          .WithField("output.shared_memory");
  }
  return OkStatus();
}

Status CheckResult(const GemmProblem& problem, int64_t limit, DecodedGemm* out) {
  ASSIGN_OR_RETURN(const int64_t bytes, ResultBytes(problem));
  if (bytes > limit) {
    return OutOfRange("d", "d has " + Str(bytes) + " bytes = " + Str(problem.batch) + "*" +
                               Str(problem.m) + "*" + Str(problem.n) + "*" +
                               Str(SizeOf(problem.type_d)) + ", the limit of a result is " +
                               Str(limit) + "; split the product along m or n");
  }
  out->result_bytes = bytes;
  out->bytes += bytes;
  return OkStatus();
}

}  // namespace

std::string ValidRequestId(const v1::GemmRequest& request) {
  return CheckRequestId(request.request_id()).ok() ? request.request_id() : "";
}

StatusOr<DecodedGemm> DecodeGemm(const v1::GemmRequest& request, int64_t max_result_bytes) {
  DecodedGemm out;
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  RETURN_IF_ERROR(CheckNoUnknownFields(request, "request"));
  if (!request.has_problem()) {
    return InvalidArgument("problem", "problem is missing: m, n, k and type_a at least");
  }
  GemmProblem& problem = out.problem;
  RETURN_IF_ERROR(DecodeScalars(request.problem(), request.has_bias(), &problem));
  SetLayouts(StridesOf(request.a()), StridesOf(request.b()), StridesOf(request.c()), &problem);
  RETURN_IF_ERROR(ValidateProblem(problem));
  RETURN_IF_ERROR(CheckOutput(request.output()));
  ASSIGN_OR_RETURN(out.constraints, DecodePlanOptions(request.plan()));
  RETURN_IF_ERROR(CheckResult(problem, max_result_bytes, &out));

  const std::string ab_reader = "problem.alpha is not 0 and problem.k=" + Str(problem.k);
  RETURN_IF_ERROR(DecodeMatrix("a", request.has_a(), request.a(), problem.a, problem.batch,
                               problem.type_a, problem.reads_ab(), ab_reader, &out.operands.a,
                               &out.bytes));
  RETURN_IF_ERROR(DecodeMatrix("b", request.has_b(), request.b(), problem.b, problem.batch,
                               problem.type_b, problem.reads_ab(), ab_reader, &out.operands.b,
                               &out.bytes));
  RETURN_IF_ERROR(DecodeMatrix("c", request.has_c(), request.c(), problem.c, problem.batch,
                               problem.type_d, problem.reads_c(), "problem.beta is not 0",
                               &out.operands.c, &out.bytes));
  if (request.has_bias()) RETURN_IF_ERROR(DecodeBias(request.bias(), problem, &out));
  out.request_id = request.request_id();
  return out;
}

// What is said of field `from`, said of the same field as another message names it.
Status Renamed(const Status& status, std::string_view from, std::string_view to) {
  std::string message = status.message();
  if (message.starts_with(from)) message.replace(0, from.size(), to);
  return Status(status.code(), std::move(message)).WithField(std::string(to));
}

// ExplainPlanRequest has names of its own for some of what Gemm's operands say.
Status InTermsOfExplain(const Status& status) {
  struct Rename {
    std::string_view from, to;
  };
  constexpr Rename kLds[] = {{"a.ld", "lda"}, {"b.ld", "ldb"}, {"c.ld", "ldc"}};
  for (const Rename& ld : kLds) {
    if (status.field() == ld.from) return Renamed(status, ld.from, ld.to);
  }
  return status;
}

StatusOr<DecodedExplain> DecodeExplain(const v1::ExplainPlanRequest& request) {
  DecodedExplain out;
  RETURN_IF_ERROR(CheckNoUnknownFields(request, "request"));
  if (!request.has_problem()) {
    return InvalidArgument("problem", "problem is missing: m, n, k and type_a at least");
  }
  RETURN_IF_ERROR(DecodeScalars(request.problem(), /*has_bias=*/false, &out.problem));
  const std::pair<const char*, int64_t> lds[] = {
      {"lda", request.lda()}, {"ldb", request.ldb()}, {"ldc", request.ldc()}};
  for (const auto& [name, ld] : lds) {
    if (ld < 0) return InvalidArgument(name, std::string(name) + "=" + Str(ld) + " is below 0");
  }
  SetLayouts({.ld = request.lda()}, {.ld = request.ldb()}, {.ld = request.ldc()}, &out.problem);
  RETURN_IF_ERROR(InTermsOfExplain(ValidateProblem(out.problem)));
  ASSIGN_OR_RETURN(out.constraints, DecodePlanOptions(request.plan()));
  if (request.max_candidates() < 0) {
    return InvalidArgument("max_candidates",
                           "max_candidates=" + Str(request.max_candidates()) + " is below 0");
  }
  out.max_candidates =
      request.max_candidates() == 0 ? kDefaultCandidates : request.max_candidates();
  return out;
}

namespace {

StatusOr<GemmProblem> DecodePacked(const v1::Problem& in) {
  GemmProblem problem;
  RETURN_IF_ERROR(DecodeScalars(in, /*has_bias=*/false, &problem));
  SetLayouts({}, {}, {}, &problem);
  RETURN_IF_ERROR(ValidateProblem(problem));
  return problem;
}

StatusOr<std::vector<GemmProblem>> DecodeProblems(
    const google::protobuf::RepeatedPtrField<v1::Problem>& in) {
  if (in.size() > kMaxTuningProblems) {
    return InvalidArgument("problems", "problems has " + Str(in.size()) +
                                           " entries, the limit is " + Str(kMaxTuningProblems));
  }
  std::vector<GemmProblem> out;
  for (int i = 0; i < in.size(); ++i) {
    StatusOr<GemmProblem> problem = DecodePacked(in[i]);
    if (!problem.ok()) return AboutProblem(i, problem.status());
    out.push_back(*problem);
  }
  return out;
}

constexpr int64_t kMaxBudgetSeconds = 7LL * 24 * 3600;
constexpr std::chrono::seconds kDefaultProfile{1};
constexpr std::chrono::milliseconds kLeastProfile{10};
constexpr int64_t kMostProfileSeconds = 60;

// `bound` says what it must be, besides at most `most_seconds`: "above 0".
StatusOr<Nanoseconds> DecodeTime(const std::string& field, const google::protobuf::Duration& in,
                                 Nanoseconds least, int64_t most_seconds,
                                 const std::string& bound) {
  const bool whole = in.nanos() >= 0 && in.nanos() < 1'000'000'000;
  const bool far = in.seconds() > most_seconds || in.seconds() < 0 || !whole;
  const Nanoseconds time =
      far ? Nanoseconds(-1) : std::chrono::seconds(in.seconds()) + Nanoseconds(in.nanos());
  if (time >= least && time <= std::chrono::seconds(most_seconds)) return time;
  return InvalidArgument(field, field + "=" + Str(in.seconds()) + " s and " + Str(in.nanos()) +
                                    " ns is not " + bound + " and at most " + Str(most_seconds) +
                                    " s");
}

}  // namespace

StatusOr<DecodedTune> DecodeTune(const v1::TuneRequest& request) {
  DecodedTune out;
  RETURN_IF_ERROR(CheckNoUnknownFields(request, "request"));
  ASSIGN_OR_RETURN(out.problems, DecodeProblems(request.problems()));
  out.served = request.served();
  out.calibrate = request.calibrate();
  if (out.problems.empty() && !out.served && !out.calibrate) {
    return InvalidArgument("problems", "problems has no entries; at least 1, served or calibrate");
  }
  if (request.has_budget()) {
    ASSIGN_OR_RETURN(out.budget, DecodeTime("budget", request.budget(), Nanoseconds(1),
                                            kMaxBudgetSeconds, "above 0"));
  }
  return out;
}

StatusOr<DecodedStudy> DecodeStudy(const v1::StudyRequest& request) {
  DecodedStudy out;
  RETURN_IF_ERROR(CheckNoUnknownFields(request, "request"));
  ASSIGN_OR_RETURN(out.problems, DecodeProblems(request.problems()));
  v1::PlanOptions options;
  options.set_kernel(request.kernel());
  const StatusOr<PlanConstraints> constraints = DecodePlanOptions(options);
  if (!constraints.ok()) return InTermsOfStudy(constraints.status());
  out.row = constraints->row;
  out.max_stages = request.max_stages();
  if (out.max_stages < 0) {
    return InvalidArgument("max_stages", "max_stages=" + Str(out.max_stages) + " is below 0");
  }
  return out;
}

StatusOr<DecodedProfile> DecodeProfile(const v1::ProfileRequest& request) {
  DecodedProfile out;
  RETURN_IF_ERROR(CheckNoUnknownFields(request, "request"));
  if (!request.has_problem()) {
    return InvalidArgument("problem", "problem is missing: m, n, k and type_a at least");
  }
  ASSIGN_OR_RETURN(out.problem, DecodePacked(request.problem()));
  ASSIGN_OR_RETURN(out.constraints, DecodePlanOptions(request.plan()));
  out.duration = kDefaultProfile;
  if (request.has_duration()) {
    ASSIGN_OR_RETURN(out.duration, DecodeTime("duration", request.duration(), kLeastProfile,
                                              kMostProfileSeconds, "10 ms or more"));
  }
  return out;
}

Status InTermsOfStudy(const Status& status) {
  return status.field() == "plan.kernel" ? Renamed(status, "plan.kernel", "kernel") : status;
}

}  // namespace gemmd
