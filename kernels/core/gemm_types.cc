#include "kernels/core/gemm_types.h"

#include <cmath>
#include <limits>

#include "kernels/core/checked.h"
#include "kernels/core/text.h"

namespace gemmd {
namespace {

struct DTypeName {
  DType type;
  std::string_view name;
};
constexpr DTypeName kDTypeNames[] = {
    {DType::kF16, "f16"},     {DType::kBF16, "bf16"},   {DType::kF32, "f32"}, {DType::kF64, "f64"},
    {DType::kF8E4M3, "e4m3"}, {DType::kF8E5M2, "e5m2"}, {DType::kI8, "i8"},   {DType::kI32, "i32"},
};
constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max();
constexpr std::string_view kActivationNames[] = {"none", "relu", "gelu", "silu"};

bool IsFp8(DType type) { return type == DType::kF8E4M3 || type == DType::kF8E5M2; }

std::string Str(int64_t value) { return std::to_string(value); }

Status CheckExtent(const std::string& field, int64_t value) {
  if (value < 0) return InvalidArgument(field, field + "=" + Str(value) + " is below 0");
  if (value > kMaxExtent) {
    return InvalidArgument(field,
                           field + "=" + Str(value) + " exceeds the limit " + Str(kMaxExtent));
  }
  return OkStatus();
}

Status CheckScalar(const std::string& field, double value, bool fp64) {
  if (!std::isfinite(value)) {
    return InvalidArgument(field, field + "=" + Short(value) + " is not finite");
  }
  const double limit =
      fp64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  if (std::fabs(value) > limit) {
    return InvalidArgument(field, field + "=" + Exact(value) +
                                      " is beyond the fp32 accumulator's largest value " +
                                      Exact(limit));
  }
  return OkStatus();
}

// An extent of a problem, by its name in the message: "m".
struct Extent {
  const char* name;
  int64_t value;
};

std::string Str(const Extent& extent) { return std::string(extent.name) + "=" + Str(extent.value); }

// Of matrices whose strides nobody chose: the extents are at fault, `batch` where one matrix fits.
Status TooLarge(const Extent& rows, const Extent& cols, const Extent& batch, DType type,
                bool one_fits) {
  const Extent& at_fault = one_fits ? batch : rows;
  std::string message = Str(rows) + " rows of " + Str(cols) + " values of " + Str(SizeOf(type)) +
                        " bytes exceed the limit of 2^63-1 bytes";
  if (one_fits) message = Str(batch) + " matrices of " + message;
  return InvalidArgument("problem." + std::string(at_fault.name), "problem." + message);
}

Status CheckLayout(std::string_view name, const MatrixLayout& layout, const Extent& rows,
                   const Extent& cols, const Extent& batch, DType type) {
  const std::string field(name);
  if (layout.rows != rows.value || layout.cols != cols.value) {
    return Internal(field + " is laid out as " + Str(layout.rows) + "x" + Str(layout.cols) +
                    ", the problem says " + Str(rows.value) + "x" + Str(cols.value));
  }
  if (layout.ld < cols.value) {
    return InvalidArgument(field + ".ld", field + ".ld=" + Str(layout.ld) +
                                              " is below its row length " + Str(cols.value));
  }
  if (layout.batch_stride < 0) {
    return InvalidArgument(field + ".batch_stride",
                           field + ".batch_stride=" + Str(layout.batch_stride) + " is below 0");
  }
  Status status = StorageBytes(layout, batch.value, type, name).status();
  if (status.ok()) return status;
  const bool padded = layout.ld != cols.value;
  if (status.field() == field + ".ld") {
    return padded ? status : TooLarge(rows, cols, batch, type, /*one_fits=*/false);
  }
  const int64_t packed = CheckedMul(layout.rows, layout.ld).value_or(kMaxBytes);
  if (layout.batch_stride != packed) return status;
  return TooLarge(rows, padded ? Extent{"ld", layout.ld} : cols, batch, type, /*one_fits=*/true);
}

Status CheckTypes(const GemmProblem& p) {
  const auto refuse = [](const std::string& field, const std::string& value,
                         const std::string& why) {
    return InvalidArgument("problem." + field, "problem." + field + "=" + value + why);
  };
  const std::string a(Name(p.type_a)), b(Name(p.type_b)), d(Name(p.type_d));
  if (p.type_a == DType::kI32) return refuse("type_a", a, " is for results of i8 only");
  const bool pair_ok = p.type_a == p.type_b || (IsFp8(p.type_a) && IsFp8(p.type_b));
  if (!pair_ok) return refuse("type_b", b, " does not go with type_a " + a);
  bool result_ok = false;
  switch (p.type_a) {
    case DType::kF16:
    case DType::kBF16: result_ok = p.type_d == p.type_a || p.type_d == DType::kF32; break;
    case DType::kF32:
    case DType::kF64: result_ok = p.type_d == p.type_a; break;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      result_ok = p.type_d == DType::kBF16 || p.type_d == DType::kF16 || p.type_d == DType::kF32;
      break;
    case DType::kI8: result_ok = p.type_d == DType::kI32; break;
    case DType::kI32: break;
  }
  if (!result_ok) return refuse("type_d", d, " is not a result type of " + a);
  if (p.mode != ComputeMode::kIeee && p.type_a != DType::kF32) {
    return refuse("compute_mode", std::string(Name(p.mode)), " is for f32 operands, not " + a);
  }
  if (p.type_a != DType::kI8) return OkStatus();
  if (p.alpha != 1.0) return refuse("alpha", Short(p.alpha), "; i8 takes 1 only");
  if (p.beta != 0.0) return refuse("beta", Short(p.beta), "; i8 takes 0 only");
  if (p.bias != BiasAxis::kNone) return InvalidArgument("bias", "bias is not for i8");
  if (p.act != Activation::kNone && p.act != Activation::kRelu) {
    return refuse("activation", std::string(Name(p.act)), "; i8 takes none or relu only");
  }
  if (p.k > kMaxInt8K) {
    return refuse(
        "k", Str(p.k),
        " exceeds the limit " + Str(kMaxInt8K) + ", past which an i8 product can overflow i32");
  }
  return OkStatus();
}

}  // namespace

std::string_view Name(DType type) { return kDTypeNames[static_cast<int>(type)].name; }
std::string_view Name(Activation act) { return kActivationNames[static_cast<int>(act)]; }
std::string_view Name(ComputeMode mode) {
  constexpr std::string_view kNames[] = {"ieee", "tf32", "tf32x3"};
  return kNames[static_cast<int>(mode)];
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeName& entry : kDTypeNames) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

std::optional<Activation> ActivationFromName(std::string_view name) {
  for (int i = 0; i < 4; ++i) {
    if (kActivationNames[i] == name) return static_cast<Activation>(i);
  }
  return std::nullopt;
}

GemmProblem WithPackedLayouts(GemmProblem problem) {
  const auto packed = [](int64_t rows, int64_t cols) {
    return MatrixLayout{.rows = rows, .cols = cols, .ld = cols, .batch_stride = rows * cols};
  };
  const int64_t m = problem.m, n = problem.n, k = problem.k;
  problem.a = problem.op_a == Op::kN ? packed(m, k) : packed(k, m);
  problem.b = problem.op_b == Op::kN ? packed(k, n) : packed(n, k);
  problem.c = packed(m, n);
  return problem;
}

StatusOr<int64_t> StorageBytes(const MatrixLayout& layout, int64_t batch, DType type,
                               std::string_view field) {
  if (layout.rows == 0 || layout.cols == 0 || batch == 0) return int64_t{0};
  std::optional<int64_t> elements = CheckedMul(layout.rows - 1, layout.ld);
  elements = CheckedAdd(elements, layout.cols);
  const bool one_fits = CheckedMul(elements, SizeOf(type)).has_value();
  elements = CheckedAdd(elements, CheckedMul(batch - 1, layout.batch_stride));
  const std::optional<int64_t> bytes = CheckedMul(elements, SizeOf(type));
  if (bytes) return *bytes;
  const std::string at = std::string(field) + (one_fits ? ".batch_stride" : ".ld");
  const std::string value = one_fits
                                ? Str(layout.batch_stride) + " over problem.batch=" + Str(batch)
                                : Str(layout.ld) + " over " + Str(layout.rows) + " rows";
  return InvalidArgument(at, at + "=" + value + " exceeds the limit of 2^63-1 bytes");
}

StatusOr<int64_t> ResultBytes(const GemmProblem& problem) {
  if (problem.empty()) return int64_t{0};
  const std::optional<int64_t> elements =
      CheckedMul(CheckedMul(problem.m, problem.n), problem.batch);
  const std::optional<int64_t> bytes = CheckedMul(elements, SizeOf(problem.type_d));
  if (bytes) return *bytes;
  const bool one_fits =
      CheckedMul(CheckedMul(problem.m, problem.n), SizeOf(problem.type_d)).has_value();
  return TooLarge({"m", problem.m}, {"n", problem.n}, {"batch", problem.batch}, problem.type_d,
                  one_fits);
}

Status ValidateProblem(const GemmProblem& p) {
  RETURN_IF_ERROR(CheckExtent("problem.m", p.m));
  RETURN_IF_ERROR(CheckExtent("problem.n", p.n));
  RETURN_IF_ERROR(CheckExtent("problem.k", p.k));
  RETURN_IF_ERROR(CheckExtent("problem.batch", p.batch));
  const bool fp64 = p.type_a == DType::kF64;
  RETURN_IF_ERROR(CheckScalar("problem.alpha", p.alpha, fp64));
  RETURN_IF_ERROR(CheckScalar("problem.beta", p.beta, fp64));
  RETURN_IF_ERROR(CheckTypes(p));
  if (!CheckedMul(CheckedMul(CheckedMul(p.m, p.n), p.k), p.batch)) {
    return InvalidArgument("problem.m", "problem.m*n*k*batch = " + Str(p.m) + "*" + Str(p.n) + "*" +
                                            Str(p.k) + "*" + Str(p.batch) +
                                            " exceeds the limit of 2^63-1");
  }
  const Extent m{"m", p.m}, n{"n", p.n}, k{"k", p.k}, batch{"batch", p.batch};
  const bool a_plain = p.op_a == Op::kN, b_plain = p.op_b == Op::kN;
  RETURN_IF_ERROR(CheckLayout("a", p.a, a_plain ? m : k, a_plain ? k : m, batch, p.type_a));
  RETURN_IF_ERROR(CheckLayout("b", p.b, b_plain ? k : n, b_plain ? n : k, batch, p.type_b));
  RETURN_IF_ERROR(CheckLayout("c", p.c, m, n, batch, p.type_d));
  return ResultBytes(p).status();
}

DType DefaultResultType(DType type_a) {
  switch (type_a) {
    case DType::kF8E4M3:
    case DType::kF8E5M2: return DType::kBF16;
    case DType::kI8: return DType::kI32;
    default: return type_a;
  }
}

std::string OpsName(const GemmProblem& p) {
  return {p.op_a == Op::kT ? 'T' : 'N', p.op_b == Op::kT ? 'T' : 'N'};
}

std::string ToString(const GemmProblem& p) {
  std::string text(Name(p.type_a));
  if (p.type_b != p.type_a) text += "," + std::string(Name(p.type_b));
  text += " " + OpsName(p) + " " + Str(p.m) + "x" + Str(p.n) + "x" + Str(p.k) + " batch " +
          Str(p.batch);
  return text;
}

}  // namespace gemmd
