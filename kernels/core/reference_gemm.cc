#include "kernels/core/reference_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "kernels/core/numeric.h"

namespace gemmd {
namespace {

using Matrix = std::vector<double>;  // packed

// Problem `index` of a batch as stored, transposed where `op` says so.
Matrix LoadMatrix(const std::byte* base, DType type, const MatrixLayout& layout, Op op,
                  int64_t index) {
  Matrix matrix(static_cast<size_t>(layout.rows * layout.cols));
  for (int64_t row = 0; row < layout.rows; ++row) {
    for (int64_t col = 0; col < layout.cols; ++col) {
      const int64_t to = op == Op::kN ? row * layout.cols + col : col * layout.rows + row;
      matrix[static_cast<size_t>(to)] =
          LoadElement(base, type, index * layout.batch_stride + row * layout.ld + col);
    }
  }
  return matrix;
}

void MakeAbsolute(Matrix& matrix) {
  for (double& value : matrix) value = std::fabs(value);
}

// One problem's alpha * a b + beta * c + bias, into `d`; `absolute` takes every term's magnitude.
void ReferenceOne(const GemmProblem& p, const HostOperands& operands, int64_t index, bool absolute,
                  double* d) {
  std::fill(d, d + p.m * p.n, 0.0);
  if (p.reads_ab()) {
    Matrix a = LoadMatrix(operands.a, p.type_a, p.a, p.op_a, index);
    Matrix b = LoadMatrix(operands.b, p.type_b, p.b, p.op_b, index);
    if (absolute) {
      MakeAbsolute(a);
      MakeAbsolute(b);
    }
    for (int64_t i = 0; i < p.m; ++i) {
      double* const d_row = d + i * p.n;
      for (int64_t l = 0; l < p.k; ++l) {
        const double a_il = a[static_cast<size_t>(i * p.k + l)];
        const double* const b_row = b.data() + l * p.n;
        for (int64_t j = 0; j < p.n; ++j) d_row[j] += a_il * b_row[j];
      }
    }
    const double alpha = absolute ? std::fabs(p.alpha) : p.alpha;
    for (int64_t i = 0; i < p.m * p.n; ++i) d[i] *= alpha;
  }
  const auto term = [&](const std::byte* base, double scale, int64_t element) {
    const double value = scale * LoadElement(base, p.type_d, element);
    return absolute ? std::fabs(value) : value;
  };
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double& value = d[i * p.n + j];
      if (p.reads_c()) {
        value += term(operands.c, p.beta, index * p.c.batch_stride + i * p.c.ld + j);
      }
      if (p.bias != BiasAxis::kNone) {
        value += term(operands.bias, 1.0, p.bias == BiasAxis::kPerColumn ? j : i);
      }
    }
  }
}

Matrix ReferenceAll(const GemmProblem& p, const HostOperands& operands, bool absolute) {
  if (p.empty()) return {};
  Matrix d(static_cast<size_t>(p.batch * p.m * p.n));
  for (int64_t index = 0; index < p.batch; ++index) {
    ReferenceOne(p, operands, index, absolute, d.data() + index * p.m * p.n);
  }
  return d;
}

double Activate(Activation act, double x) {
  switch (act) {
    case Activation::kNone: return x;
    case Activation::kRelu: return x < 0 ? 0 : x;  // NaN stays NaN
    case Activation::kGelu: return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case Activation::kSilu: {
      const double e = std::exp(-std::fabs(x));
      return x * ((x < 0 ? e : 1) / (1 + e));
    }
  }
  return x;
}

// How much an activation may enlarge an error and add of its own, as a factor beside 1.
double ActivationSlope(Activation act) {
  return act == Activation::kGelu || act == Activation::kSilu ? 1.13 : 0;
}

double AccumulatorUnit(const GemmProblem& p) {
  if (p.type_a == DType::kI8) return 0;
  if (p.type_a == DType::kF64) return 0x1p-53;
  if (p.mode == ComputeMode::kTf32) return 0x1p-11;
  if (p.mode == ComputeMode::kTf32x3) return 0x1p-21;
  return 0x1p-24;
}

struct Rounding {
  double unit = 0;                // largest relative error of rounding to the type
  double smallest_subnormal = 0;  // largest absolute error near 0, doubled
};

Rounding RoundingOf(DType type) {
  switch (type) {
    case DType::kF16: return {0x1p-11, 0x1p-24};
    case DType::kBF16: return {0x1p-8, 0x1p-133};
    case DType::kF32: return {0x1p-24, 0x1p-149};
    case DType::kF64: return {0x1p-53, std::numeric_limits<double>::denorm_min()};
    case DType::kF8E4M3: return {0x1p-4, 0x1p-9};
    case DType::kF8E5M2: return {0x1p-3, 0x1p-16};
    case DType::kI8:
    case DType::kI32: return {};
  }
  return {};
}

double RoundTo(DType type, double value) {
  std::byte bytes[8];
  StoreElement(bytes, type, 0, value);
  return LoadElement(bytes, type, 0);
}

// Beyond the accumulator's error alone, an infinity is right only where the reference's
// neighbourhood rounds to it, and a finite value only where some of it rounds to a finite one.
bool IsRight(DType type, double expected, double got, double accumulator_error, double allowed) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  const double away = std::copysign(accumulator_error, expected);
  if (std::isinf(got)) return RoundTo(type, expected + away) == got;
  return std::fabs(got - expected) <= allowed && !std::isinf(RoundTo(type, expected - away));
}

}  // namespace

std::vector<double> ReferenceGemm(const GemmProblem& problem, const HostOperands& operands) {
  Matrix d = ReferenceAll(problem, operands, /*absolute=*/false);
  if (problem.act != Activation::kNone) {
    for (double& value : d) value = Activate(problem.act, value);
  }
  return d;
}

std::vector<double> ReferenceMagnitude(const GemmProblem& problem, const HostOperands& operands) {
  return ReferenceAll(problem, operands, /*absolute=*/true);
}

std::string Mismatch::ToString() const {
  if (ok) return "all elements right, worst error/allowed " + std::to_string(worst_ratio);
  char values[160];
  std::snprintf(values, sizeof(values), "expected %.9g, got %.9g, allowed error %.3g", expected,
                got, allowed);
  return std::to_string(wrong_elements) + " of " + std::to_string(elements) +
         " elements wrong; first at [" + std::to_string(batch_index) + ", " + std::to_string(row) +
         ", " + std::to_string(col) + "]: " + values;
}

Mismatch CompareWithReference(const GemmProblem& problem, const HostOperands& operands) {
  const Matrix reference = ReferenceGemm(problem, operands);
  const Matrix magnitude = ReferenceMagnitude(problem, operands);
  const Rounding rounding = RoundingOf(problem.type_d);
  const double growth = (1 + ActivationSlope(problem.act)) *
                        (2 + std::sqrt(static_cast<double>(problem.k))) * AccumulatorUnit(problem);
  Mismatch result;
  result.elements = static_cast<int64_t>(reference.size());
  for (size_t i = 0; i < reference.size(); ++i) {
    const double expected = reference[i];
    const double got = LoadElement(operands.d, problem.type_d, static_cast<int64_t>(i));
    // Infinite terms have no rounding error: what is finite after them (ReLU of -inf) is exact.
    const double error = std::isfinite(magnitude[i]) ? growth * magnitude[i] : 0;
    const double allowed =
        rounding.unit * std::fabs(expected) + error + rounding.smallest_subnormal;
    const bool right = IsRight(problem.type_d, expected, got, error, allowed);
    if (std::isfinite(expected) && std::isfinite(got) && allowed > 0) {
      result.worst_ratio = std::max(result.worst_ratio, std::fabs(got - expected) / allowed);
    }
    if (right || result.wrong_elements++ > 0) continue;
    const int64_t index = static_cast<int64_t>(i), row = index / problem.n;
    result.ok = false;
    result.first_wrong = index;
    result.expected = expected;
    result.got = got;
    result.allowed = allowed;
    result.batch_index = row / problem.m;
    result.row = row % problem.m;
    result.col = index % problem.n;
  }
  return result;
}

}  // namespace gemmd
