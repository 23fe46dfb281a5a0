#include "tests/support/matrices.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/core/numeric.h"

namespace gemmd {
namespace {

constexpr std::ptrdiff_t kGuardBytes = 256;
constexpr std::byte kGuard{0xc3};
constexpr std::byte kPoison{0xff};

// splitmix64's finalizer: every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

size_t Bytes(const StatusOr<int64_t>& bytes) {
  return bytes.ok() ? static_cast<size_t>(*bytes) : 0;
}

MatrixLayout BiasLayout(const GemmProblem& p) {
  return {.rows = 1, .cols = p.bias_length(), .ld = p.bias_length(), .batch_stride = 0};
}

}  // namespace

uint64_t TestSeed() {
  const char* const text = std::getenv("GEMMD_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 20240229;
}

std::string SeedTrace(uint64_t seed) {
  return "GEMMD_TEST_SEED=" + std::to_string(TestSeed()) + ", seed here " + std::to_string(seed);
}

ValueAt Constant(double value) {
  return [value](int64_t, int64_t, int64_t) { return value; };
}

ValueAt Uniform(DType type, uint64_t seed) {
  const bool integer = type == DType::kI8 || type == DType::kI32;
  return [=](int64_t index, int64_t row, int64_t col) {
    const auto place =
        Mix(Mix(Mix(seed) ^ static_cast<uint64_t>(index)) ^ static_cast<uint64_t>(row << 32 ^ col));
    if (integer) return static_cast<double>(place >> 56) - 128;
    return static_cast<double>(place >> 11) * 0x1p-52 - 1;
  };
}

std::vector<std::byte> MakeMatrix(const MatrixLayout& layout, int64_t batch, DType type,
                                  const ValueAt& value) {
  std::vector<std::byte> matrix(Bytes(StorageBytes(layout, batch, type, "matrix")), kPoison);
  if (layout.batch_stride == 0) batch = std::min<int64_t>(batch, 1);
  for (int64_t index = 0; index < batch; ++index) {
    for (int64_t row = 0; row < layout.rows; ++row) {
      for (int64_t col = 0; col < layout.cols; ++col) {
        StoreElement(matrix.data(), type, index * layout.batch_stride + row * layout.ld + col,
                     value(index, row, col));
      }
    }
  }
  return matrix;
}

MatrixLayout Padded(MatrixLayout layout, int64_t pad) {
  layout.ld = layout.cols + pad;
  layout.batch_stride = layout.rows * layout.ld + pad;
  return layout;
}

GemmData::GemmData(const GemmProblem& problem, uint64_t seed)
    : problem_(problem), guarded_result_(2 * kGuardBytes + Bytes(ResultBytes(problem)), kGuard) {
  SetA(Uniform(problem.type_a, Mix(seed)));
  SetB(Uniform(problem.type_b, Mix(seed + 1)));
  if (problem.reads_c()) SetC(Uniform(problem.type_d, Mix(seed + 2)));
  SetBias(Uniform(problem.type_d, Mix(seed + 3)));
  PoisonResult(kPoison);
}

HostOperands GemmData::operands() {
  return {.a = problem_.reads_ab() ? a_.data() : nullptr,
          .b = problem_.reads_ab() ? b_.data() : nullptr,
          .c = problem_.reads_c() ? c_.data() : nullptr,
          .bias = problem_.bias == BiasAxis::kNone ? nullptr : bias_.data(),
          .d = guarded_result_.data() + kGuardBytes};
}

void GemmData::SetA(const ValueAt& value) {
  a_ = MakeMatrix(problem_.a, problem_.batch, problem_.type_a, value);
}
void GemmData::SetB(const ValueAt& value) {
  b_ = MakeMatrix(problem_.b, problem_.batch, problem_.type_b, value);
}
void GemmData::SetC(const ValueAt& value) {
  c_ = MakeMatrix(problem_.c, problem_.batch, problem_.type_d, value);
}
void GemmData::SetBias(const ValueAt& value) {
  bias_ = MakeMatrix(BiasLayout(problem_), 1, problem_.type_d, value);
}

void GemmData::PoisonResult(std::byte value) {
  std::fill(guarded_result_.begin() + kGuardBytes, guarded_result_.end() - kGuardBytes, value);
}

std::vector<std::byte> GemmData::result() const {
  return {guarded_result_.begin() + kGuardBytes, guarded_result_.end() - kGuardBytes};
}

double GemmData::ResultAt(int64_t element) const {
  return LoadElement(guarded_result_.data() + kGuardBytes, problem_.type_d, element);
}

bool GemmData::GuardsIntact() const {
  const auto is_guard = [](std::byte value) { return value == kGuard; };
  return std::all_of(guarded_result_.begin(), guarded_result_.begin() + kGuardBytes, is_guard) &&
         std::all_of(guarded_result_.end() - kGuardBytes, guarded_result_.end(), is_guard);
}

}  // namespace gemmd
