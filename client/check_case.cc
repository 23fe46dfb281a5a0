#include "client/check_case.h"

#include <algorithm>
#include <limits>
#include <random>

#include "kernels/core/numeric.h"

namespace gemmd {
namespace {

constexpr int64_t kMaxWork = int64_t{1} << 22;
constexpr size_t kGuardBytes = 64;
constexpr std::byte kPoison{0xcd};

// Sizes around the edges of tiles, vectors and warps; and primes, which divide by nothing.
constexpr int64_t kEdges[] = {1,  2,  3,  7,  8,  9,   13,  15,  16,  17,  31,  32,  33,  37,
                              61, 63, 64, 65, 97, 127, 128, 129, 131, 191, 193, 255, 256, 257};

class Dice {
 public:
  Dice(uint64_t seed, uint64_t index) {
    std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                           static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)};
    engine_.seed(sequence);
  }
  // Not std::uniform_int_distribution: a seed must mean the same case everywhere.
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound));
  }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  double Uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }  // [0, 1)
  template <typename T, size_t kCount>
  T Pick(const T (&values)[kCount]) {
    return values[Below(kCount)];
  }

 private:
  std::mt19937_64 engine_;
};

int64_t Extent(Dice* dice, int64_t max_extent) {
  if (dice->OneIn(40)) return 0;
  const int64_t edge = dice->Pick(kEdges);
  if (edge <= max_extent && !dice->OneIn(3)) return edge;
  return 1 + dice->Below(max_extent);
}

MatrixLayout Layout(Dice* dice, int64_t rows, int64_t cols, int64_t batch) {
  constexpr int64_t kPads[] = {1, 3, 8};
  MatrixLayout layout{.rows = rows, .cols = cols, .ld = cols, .batch_stride = 0};
  if (dice->OneIn(3)) layout.ld += dice->Pick(kPads);
  layout.batch_stride = rows * layout.ld;
  if (dice->OneIn(4)) layout.batch_stride += 5;
  if (batch > 1 && dice->OneIn(4)) layout.batch_stride = 0;
  return layout;
}

void LimitWork(GemmProblem* p) {
  int64_t* const extents[] = {&p->batch, &p->k, &p->n, &p->m};
  for (int64_t* extent : extents) {
    const double work = p->flops() / 2;
    if (work <= static_cast<double>(kMaxWork)) return;
    const double shrunk = static_cast<double>(*extent) * static_cast<double>(kMaxWork) / work;
    *extent = std::max<int64_t>(1, static_cast<int64_t>(shrunk));
  }
}

void ChooseScalars(Dice* dice, GemmProblem* p) {
  constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                         Activation::kSilu};
  if (p->type_a == DType::kI8) {
    p->act = dice->OneIn(3) ? Activation::kRelu : Activation::kNone;
    return;
  }
  constexpr double kAlphas[] = {1, 1, 1, 0.5, -1.25, 3, 0};
  constexpr double kBetas[] = {0, 0, 1, -0.5, 2};
  constexpr BiasAxis kAxes[] = {BiasAxis::kNone, BiasAxis::kNone, BiasAxis::kPerColumn,
                                BiasAxis::kPerRow};
  p->alpha = dice->Pick(kAlphas);
  p->beta = dice->Pick(kBetas);
  p->bias = dice->Pick(kAxes);
  if (dice->OneIn(2)) p->act = dice->Pick(kActivations);
}

GemmProblem ChooseProblem(Dice* dice, int64_t max_extent, const std::vector<ClientTypes>& types) {
  GemmProblem p;
  const ClientTypes& chosen =
      types[static_cast<size_t>(dice->Below(static_cast<int64_t>(types.size())))];
  p.type_a = chosen.a;
  p.type_b = chosen.b;
  p.type_d = chosen.d;
  p.mode = chosen.mode;
  p.m = Extent(dice, max_extent);
  p.n = Extent(dice, max_extent);
  p.k = Extent(dice, max_extent);
  p.batch = dice->OneIn(50) ? 0 : dice->OneIn(3) ? 2 + dice->Below(4) : 1;
  p.op_a = dice->OneIn(2) ? Op::kT : Op::kN;
  p.op_b = dice->OneIn(2) ? Op::kT : Op::kN;
  p.deterministic = dice->OneIn(4);
  ChooseScalars(dice, &p);
  LimitWork(&p);
  const bool a_plain = p.op_a == Op::kN, b_plain = p.op_b == Op::kN;
  p.a = Layout(dice, a_plain ? p.m : p.k, a_plain ? p.k : p.m, p.batch);
  p.b = Layout(dice, b_plain ? p.k : p.n, b_plain ? p.n : p.k, p.batch);
  p.c = Layout(dice, p.m, p.n, p.batch);
  return p;
}

double Poison(DType type) {
  if (type == DType::kI8) return 127;
  if (type == DType::kI32) return std::numeric_limits<int32_t>::max();
  return std::numeric_limits<double>::quiet_NaN();
}

double Value(Dice* dice, DType type) {
  if (type == DType::kI8) return static_cast<double>(dice->Below(256) - 128);
  return 2 * dice->Uniform() - 1;
}

// Storage of the layout, poisoned; with values where the matrices are, unless `unread`.
std::vector<std::byte> Operand(Dice* dice, const MatrixLayout& layout, int64_t batch, DType type,
                               bool unread) {
  const int64_t bytes = *StorageBytes(layout, batch, type, "operand");
  std::vector<std::byte> storage(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < bytes / SizeOf(type); ++i) {
    StoreElement(storage.data(), type, i, Poison(type));
  }
  if (unread || bytes == 0) return storage;
  const int64_t matrices = layout.batch_stride == 0 ? 1 : batch;
  for (int64_t i = 0; i < matrices; ++i) {
    for (int64_t row = 0; row < layout.rows; ++row) {
      const int64_t start = i * layout.batch_stride + row * layout.ld;
      for (int64_t col = 0; col < layout.cols; ++col) {
        StoreElement(storage.data(), type, start + col, Value(dice, type));
      }
    }
  }
  return storage;
}

}  // namespace

HostOperands CheckCase::Operands() { return {a.data(), b.data(), c.data(), bias.data(), d.data()}; }

bool CheckCase::GuardIntact() const {
  return std::all_of(d.begin() + result_bytes, d.end(),
                     [](std::byte byte) { return byte == kPoison; });
}

CheckCase MakeCheckCase(uint64_t seed, uint64_t index, int64_t max_extent,
                        const std::vector<ClientTypes>& types) {
  Dice dice(seed, index);
  CheckCase made;
  GemmProblem& p = made.problem;
  p = ChooseProblem(&dice, max_extent, types);
  made.a = Operand(&dice, p.a, p.batch, p.type_a, p.alpha == 0);
  made.b = Operand(&dice, p.b, p.batch, p.type_b, p.alpha == 0);
  made.c = Operand(&dice, p.c, p.batch, p.type_d, p.beta == 0);
  if (p.bias != BiasAxis::kNone) {
    const int64_t length = p.bias_length();
    const MatrixLayout row{.rows = 1, .cols = length, .ld = length, .batch_stride = 0};
    made.bias = Operand(&dice, row, 1, p.type_d, false);
  }
  made.result_bytes = *ResultBytes(p);
  made.d.assign(static_cast<size_t>(made.result_bytes) + kGuardBytes, kPoison);
  return made;
}

}  // namespace gemmd
