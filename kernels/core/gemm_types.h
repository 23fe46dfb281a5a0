// What a GEMM is:
//
//   D = act(alpha * op(A) op(B) + beta * C + bias)          for each of `batch` problems
//
// op(A) is (m, k), op(B) is (k, n), C and D are (m, n). Storage is row-major: with op N, A is
// stored as (m, k) and B as (k, n); with op T, A is stored as (k, m) and B as (n, k).
//
// BLAS rules hold. beta = 0 never reads C, alpha = 0 or k = 0 never reads A and B, and an extent
// of 0 in m, n or batch is a valid empty product. Scalars count as the accumulator holds them: one
// that rounds to 0 in its type is 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/core/status.h"

namespace gemmd {

enum class DType : uint8_t { kF16, kBF16, kF32, kF64, kF8E4M3, kF8E5M2, kI8, kI32 };
enum class Op : uint8_t { kN, kT };
// kGelu: x/2 erfc(-x / sqrt 2). kSilu: x / (1 + exp(-x)). Both keep their tail towards -infinity,
// down to where x exp(x) underflows the accumulator's type.
enum class Activation : uint8_t { kNone, kRelu, kGelu, kSilu };
// How fp32 operands are multiplied; kIeee for every other type.
enum class ComputeMode : uint8_t { kIeee, kTf32, kTf32x3 };
enum class BiasAxis : uint8_t {
  kNone,
  kPerColumn,  // n elements, bias[j] is added to column j of every row
  kPerRow,     // m elements, bias[i] is added to row i
};

constexpr int64_t SizeOf(DType type) {
  switch (type) {
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kI8: return 1;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF64: return 8;
  }
  return 0;
}

std::string_view Name(DType type);      // "f16", "bf16", "f32", "f64", "e4m3", "e5m2", "i8", "i32"
std::string_view Name(Activation act);  // "none", "relu", "gelu", "silu"
std::string_view Name(ComputeMode mode);  // "ieee", "tf32", "tf32x3"
std::optional<DType> DTypeFromName(std::string_view name);
std::optional<Activation> ActivationFromName(std::string_view name);
// What D has where nobody says: bf16 for the f8 types, i32 for i8, else the same.
DType DefaultResultType(DType type_a);

// Every extent is at most this, so that kernels may hold coordinates in 32 bits; offsets are
// 64-bit everywhere.
inline constexpr int64_t kMaxExtent = 2147483647;
// int8 products are exact in int32 below this K: 128 * 128 * (2^17 - 1) < 2^31.
inline constexpr int64_t kMaxInt8K = (int64_t{1} << 17) - 1;

// One matrix of a batch as it is stored, in elements.
struct MatrixLayout {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;            // elements from one row to the next, >= cols
  int64_t batch_stride = 0;  // elements from one problem to the next; 0 = the same for all

  friend bool operator==(const MatrixLayout&, const MatrixLayout&) = default;
};

struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  Op op_a = Op::kN, op_b = Op::kN;
  DType type_a = DType::kF32, type_b = DType::kF32;
  DType type_d = DType::kF32;  // of C, bias and D
  ComputeMode mode = ComputeMode::kIeee;
  double alpha = 1.0, beta = 0.0;
  BiasAxis bias = BiasAxis::kNone;
  Activation act = Activation::kNone;
  bool deterministic = false;  // only plans whose result never depends on timing

  // As stored. D is packed: ld = n, batch_stride = m * n. C is unused while beta = 0.
  MatrixLayout a, b, c;

  bool empty() const { return m == 0 || n == 0 || batch == 0; }
  // Whether the product itself contributes, so that A and B are read.
  bool reads_ab() const { return !empty() && k > 0 && !is_zero(alpha); }
  bool reads_c() const { return !empty() && !is_zero(beta); }
  // Of alpha or beta: whether it rounds to 0 in the accumulator's type.
  bool is_zero(double scalar) const {
    const double most = type_a == DType::kF64 ? 0.0 : 0x1p-150;  // half of fp32's smallest
    return -most <= scalar && scalar <= most;
  }
  int64_t bias_length() const {
    return bias == BiasAxis::kNone ? 0 : bias == BiasAxis::kPerColumn ? n : m;
  }
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(batch);
  }
};

// Host memory of one request's operands, laid out as GemmProblem::{a, b, c} say. Pointers may be
// null where the problem does not read them. `bias` holds bias_length() elements of type_d. `d` is
// packed (m, n) per problem, and must hold ResultBytes().
struct HostOperands {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  const std::byte* c = nullptr;
  const std::byte* bias = nullptr;
  std::byte* d = nullptr;
};

// Packed layouts of A, B and C for extents, ops and batch: ld = row length, stride = rows * ld.
// For callers whose matrices have no padding. Extents must not overflow.
GemmProblem WithPackedLayouts(GemmProblem problem);

// Bytes from the first element of the first matrix to one past the last element of the last:
//   ((batch - 1) * batch_stride + (rows - 1) * ld + cols) * SizeOf(type), 0 when rows, cols or
// batch is 0. INVALID_ARGUMENT naming `field`.ld or .batch_stride when that overflows 64 bits.
StatusOr<int64_t> StorageBytes(const MatrixLayout& layout, int64_t batch, DType type,
                               std::string_view field);

// Bytes of the packed result D. INVALID_ARGUMENT naming the extent at fault past 2^63 - 1.
StatusOr<int64_t> ResultBytes(const GemmProblem& problem);

// Everything about a problem that can be judged without its data or a device: extents, leading
// dimensions, overflow, type combinations, finite scalars in range of the accumulator. Field names
// are those of proto/gemmd/v1. INVALID_ARGUMENT with the field, or OK. What is too large for 64
// bits is blamed on a leading dimension or batch stride that is not the packed one, else on an
// extent: a caller that has set no stride hears of none.
Status ValidateProblem(const GemmProblem& problem);

std::string OpsName(const GemmProblem& problem);  // "NT": of A, then of B
// "bf16 NT 4096x7168x2048 batch 1": m x n x k. For logs and messages, never for labels.
std::string ToString(const GemmProblem& problem);

}  // namespace gemmd
