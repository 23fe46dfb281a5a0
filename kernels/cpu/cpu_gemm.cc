#include "kernels/cpu/cpu_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include <cblas.h>

#include "kernels/core/numeric.h"

namespace gemmd {
namespace {

// Edge of a copied panel. For i8 it bounds K as well: 1024 products of at most 2^14 sum to at most
// 2^24, the largest range in which fp32 holds every integer.
constexpr int64_t kPanel = 1024;

constexpr int64_t kBlasMax = std::numeric_limits<blasint>::max();
static_assert(kMaxExtent <= kBlasMax);

struct Range {
  int64_t begin = 0, size = 0;
};

// Calls `body` with each range of at most `step` that makes up [0, extent), until a stop.
template <typename Body>
void ForEachRange(int64_t extent, int64_t step, const std::stop_token& stop, const Body& body) {
  for (int64_t begin = 0; begin < extent && !stop.stop_requested(); begin += step) {
    body(Range{begin, std::min(step, extent - begin)});
  }
}

// What one call of BLAS computes, where it could compute everything: a call cannot be stopped, so
// that it should take no more than some tenths of a second of one core.
struct BlockShape {
  int64_t rows, cols, depth;
};

BlockShape BlockOfACall(const GemmProblem& p) {
  constexpr int64_t kMultiplies = int64_t{1} << 34;
  constexpr int64_t kFewestRows = 192;          // each call packs B anew, which rows make worth it
  constexpr int64_t kDepth = int64_t{1} << 16;  // a block is read again for each
  const int64_t depth = std::clamp<int64_t>(p.k, 1, kDepth);
  const int64_t fewest = std::min(p.m, kFewestRows);
  const int64_t cols = std::min(p.n, kMultiplies / (fewest * depth));
  const int64_t rows = kMultiplies / (cols * depth) / kFewestRows * kFewestRows;
  return {.rows = std::max(rows, kFewestRows), .cols = cols, .depth = depth};
}

template <typename T>
constexpr DType kDTypeOf = std::is_same_v<T, float> ? DType::kF32 : DType::kF64;

template <typename T>
bool AlignedFor(const std::byte* base) {
  return reinterpret_cast<uintptr_t>(base) % alignof(T) == 0;
}

void CopyRow(const std::byte* src, DType type, int64_t count, float* dst) {
  WidenToFloat(src, type, count, dst);
}
void CopyRow(const std::byte* src, DType, int64_t count, double* dst) {
  std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(double));
}
void StoreRow(const float* src, DType type, int64_t count, std::byte* dst) {
  NarrowFromFloat(src, type, count, dst);
}
void StoreRow(const double* src, DType, int64_t count, std::byte* dst) {
  std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(double));
}

template <typename T>
struct Panel {
  const T* data = nullptr;
  int64_t ld = 0;
};

// One problem's A or B, seen as op(A) or op(B).
template <typename T>
class Source {
 public:
  Source(const std::byte* base, DType type, const MatrixLayout& layout, Op op, int64_t index)
      : base_(base + index * layout.batch_stride * SizeOf(type)),
        type_(type),
        ld_(layout.ld),
        op_(op) {}

  // Whether BLAS can read it where it lies.
  bool direct() const { return type_ == kDTypeOf<T> && ld_ <= kBlasMax && AlignedFor<T>(base_); }
  CBLAS_TRANSPOSE transpose() const { return op_ == Op::kN ? CblasNoTrans : CblasTrans; }

  // Storage of op(X)[rows, cols], transposed as X is; copied to `scratch` where not direct.
  Panel<T> Get(Range rows, Range cols, ScratchBuffer& scratch) const {
    if (op_ == Op::kT) std::swap(rows, cols);
    const std::byte* const first = base_ + (rows.begin * ld_ + cols.begin) * SizeOf(type_);
    if (direct()) return {reinterpret_cast<const T*>(first), ld_};
    T* const copy = scratch.Get<T>(rows.size * cols.size);
    if (ld_ == cols.size) {  // one run: a column of a vector would else be copied one by one
      CopyRow(first, type_, rows.size * cols.size, copy);
      return {copy, cols.size};
    }
    for (int64_t row = 0; row < rows.size; ++row) {
      CopyRow(first + row * ld_ * SizeOf(type_), type_, cols.size, copy + row * cols.size);
    }
    return {copy, cols.size};
  }

 private:
  const std::byte* base_;
  DType type_;
  int64_t ld_;
  Op op_;
};

struct Shape {
  blasint m, n, k;
};

// alpha is always 1, so that BLAS skips no operand; beta is 0 (D is not read) or 1.
void Multiply(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, Shape s, Panel<float> a, Panel<float> b,
              float beta, float* d, int64_t ldd) {
  cblas_sgemm(CblasRowMajor, ta, tb, s.m, s.n, s.k, 1.0f, a.data, static_cast<blasint>(a.ld),
              b.data, static_cast<blasint>(b.ld), beta, d, static_cast<blasint>(ldd));
}
void Multiply(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, Shape s, Panel<double> a, Panel<double> b,
              double beta, double* d, int64_t ldd) {
  cblas_dgemm(CblasRowMajor, ta, tb, s.m, s.n, s.k, 1.0, a.data, static_cast<blasint>(a.ld), b.data,
              static_cast<blasint>(b.ld), beta, d, static_cast<blasint>(ldd));
}

Shape BlasShape(Range rows, Range cols, Range depth) {
  return {static_cast<blasint>(rows.size), static_cast<blasint>(cols.size),
          static_cast<blasint>(depth.size)};
}

template <typename T>
void Activate(Activation act, T* row, int64_t count) {
  switch (act) {
    case Activation::kNone: return;
    case Activation::kRelu:
      for (int64_t j = 0; j < count; ++j) row[j] = row[j] < 0 ? 0 : row[j];  // NaN stays NaN
      return;
    case Activation::kGelu:
      for (int64_t j = 0; j < count; ++j) {
        row[j] = row[j] / 2 * std::erfc(row[j] * static_cast<T>(-0.70710678118654752440));
      }
      return;
    case Activation::kSilu:
      for (int64_t j = 0; j < count; ++j) {  // as x / (1 + exp(-x)), which overflows
        const T e = std::exp(-std::fabs(row[j]));
        row[j] *= (row[j] < 0 ? e : 1) / (1 + e);
      }
      return;
  }
}

bool IsIdentityEpilogue(const GemmProblem& p) {
  return p.reads_ab() && p.alpha == 1.0 && !p.reads_c() && p.bias == BiasAxis::kNone &&
         p.act == Activation::kNone;
}

// One block of D: act(alpha * product + beta * C + bias), in the product's place and then to D
// unless it stands there already.
template <typename T>
struct Epilogue {
  const GemmProblem& p;
  const HostOperands& operands;
  int64_t index;  // of the problem in the batch
  T* c_row;       // p.n elements of scratch
  const T* bias;  // all of it, or null
  bool in_place;

  void Run(Range rows, Range cols, T* product, int64_t ld) const {
    if (in_place && IsIdentityEpilogue(p)) return;
    for (int64_t i = 0; i < rows.size; ++i) {
      RunRow(rows.begin + i, cols, product + i * ld);
    }
  }

 private:
  void RunRow(int64_t i, Range cols, T* row) const {
    const T alpha = static_cast<T>(p.alpha), beta = static_cast<T>(p.beta);
    if (!p.reads_ab()) {
      std::fill(row, row + cols.size, T{0});
    } else if (p.alpha != 1.0) {
      for (int64_t j = 0; j < cols.size; ++j) row[j] *= alpha;
    }
    if (p.reads_c()) {
      const int64_t first = index * p.c.batch_stride + i * p.c.ld + cols.begin;
      CopyRow(operands.c + first * SizeOf(p.type_d), p.type_d, cols.size, c_row);
      for (int64_t j = 0; j < cols.size; ++j) row[j] += beta * c_row[j];
    }
    if (p.bias == BiasAxis::kPerColumn) {
      for (int64_t j = 0; j < cols.size; ++j) row[j] += bias[cols.begin + j];
    } else if (p.bias == BiasAxis::kPerRow) {
      for (int64_t j = 0; j < cols.size; ++j) row[j] += bias[i];
    }
    Activate(p.act, row, cols.size);
    if (in_place) return;
    const int64_t to = (index * p.m + i) * p.n + cols.begin;
    StoreRow(row, p.type_d, cols.size, operands.d + to * SizeOf(p.type_d));
  }
};

}  // namespace

std::byte* ScratchBuffer::Reserve(size_t bytes) {
  if (bytes > size_) {
    data_.reset();
    size_ = 0;
    data_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    size_ = bytes;
  }
  return data_.get();
}

template <typename T>
void CpuGemm::RunFloats(const GemmProblem& p, const HostOperands& operands,
                        const std::stop_token& stop) {
  T* bias = nullptr;
  if (p.bias != BiasAxis::kNone) {
    bias = bias_.Get<T>(p.bias_length());
    CopyRow(operands.bias, p.type_d, p.bias_length(), bias);
  }
  for (int64_t index = 0; index < p.batch && !stop.stop_requested(); ++index) {
    RunFloat<T>(p, operands, index, bias, stop);
  }
}

template <typename T>
void CpuGemm::RunFloat(const GemmProblem& p, const HostOperands& operands, int64_t index,
                       const T* bias, const std::stop_token& stop) {
  std::byte* const d = operands.d + index * p.m * p.n * SizeOf(p.type_d);
  const bool in_place = p.type_d == kDTypeOf<T> && AlignedFor<T>(d);
  const Source<T> a(operands.a, p.type_a, p.reads_ab() ? p.a : MatrixLayout{}, p.op_a, index);
  const Source<T> b(operands.b, p.type_b, p.reads_ab() ? p.b : MatrixLayout{}, p.op_b, index);
  const bool whole = in_place && (!p.reads_ab() || (a.direct() && b.direct()));
  const BlockShape block = whole ? BlockOfACall(p) : BlockShape{kPanel, kPanel, kPanel};
  T* const c_row = p.reads_c() ? c_row_.Get<T>(std::min(block.cols, p.n)) : nullptr;
  const Epilogue<T> epilogue{p, operands, index, c_row, bias, in_place};

  ForEachRange(p.n, block.cols, stop, [&](Range cols) {
    ForEachRange(p.m, block.rows, stop, [&](Range rows) {
      const int64_t ld = in_place ? p.n : cols.size;
      T* const product = in_place ? reinterpret_cast<T*>(d) + rows.begin * p.n + cols.begin
                                  : product_.Get<T>(rows.size * cols.size);
      ForEachRange(p.reads_ab() ? p.k : 0, block.depth, stop, [&](Range depth) {
        Multiply(a.transpose(), b.transpose(), BlasShape(rows, cols, depth), a.Get(rows, depth, a_),
                 b.Get(depth, cols, b_), depth.begin == 0 ? T{0} : T{1}, product, ld);
      });
      if (!stop.stop_requested()) epilogue.Run(rows, cols, product, ld);
    });
  });
}

void CpuGemm::RunInt8(const GemmProblem& p, const HostOperands& operands, int64_t index,
                      const std::stop_token& stop) {
  std::byte* const d = operands.d + index * p.m * p.n * SizeOf(DType::kI32);
  if (!p.reads_ab()) {
    std::memset(d, 0, static_cast<size_t>(p.m * p.n * SizeOf(DType::kI32)));
    return;
  }
  const Source<float> a(operands.a, p.type_a, p.a, p.op_a, index);
  const Source<float> b(operands.b, p.type_b, p.b, p.op_b, index);
  const auto add_row = [&](const float* row, Range depth, int64_t count, std::byte* to) {
    const bool first = depth.begin == 0, last = depth.begin + depth.size == p.k;
    const bool relu = last && p.act == Activation::kRelu;
    for (int64_t j = 0; j < count; ++j) {
      int32_t sum = 0;
      if (!first) std::memcpy(&sum, to + j * sizeof(sum), sizeof(sum));
      sum += static_cast<int32_t>(row[j]);
      if (relu) sum = std::max(sum, 0);
      std::memcpy(to + j * sizeof(sum), &sum, sizeof(sum));
    }
  };
  ForEachRange(p.n, kPanel, stop, [&](Range cols) {
    ForEachRange(p.m, kPanel, stop, [&](Range rows) {
      float* const product = product_.Get<float>(rows.size * cols.size);
      ForEachRange(p.k, kPanel, stop, [&](Range depth) {
        Multiply(a.transpose(), b.transpose(), BlasShape(rows, cols, depth), a.Get(rows, depth, a_),
                 b.Get(depth, cols, b_), 0.0f, product, cols.size);
        for (int64_t i = 0; i < rows.size; ++i) {
          const int64_t to = (rows.begin + i) * p.n + cols.begin;
          add_row(product + i * cols.size, depth, cols.size, d + to * SizeOf(DType::kI32));
        }
      });
    });
  });
}

Status CpuGemm::Run(const GemmProblem& problem, const HostOperands& operands,
                    const std::stop_token& stop) try {
  if (problem.empty()) return OkStatus();
  if (problem.mode != ComputeMode::kIeee) {
    return Unimplemented("problem.compute_mode " + std::string(Name(problem.mode)) +
                         " has no CPU kernel; there is ieee");
  }
  switch (problem.type_a) {
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32: RunFloats<float>(problem, operands, stop); break;
    case DType::kF64: RunFloats<double>(problem, operands, stop); break;
    case DType::kI8:
      for (int64_t index = 0; index < problem.batch && !stop.stop_requested(); ++index) {
        RunInt8(problem, operands, index, stop);
      }
      break;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kI32:
      return Unimplemented("problem.type_a " + std::string(Name(problem.type_a)) +
                           " has no CPU kernel; there are f16, bf16, f32, f64 and i8");
  }
  return stop.stop_requested() ? Cancelled("the product was stopped") : OkStatus();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no host memory for the scratch of " + ToString(problem));
}

const char* BlasCoreName() { return openblas_get_corename(); }

void SetBlasThreads(int threads) { openblas_set_num_threads(threads); }

}  // namespace gemmd
