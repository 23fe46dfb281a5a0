#include "kernels/self_check.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/mutex.h"
#include "kernels/core/numeric.h"
#include "kernels/core/reference_gemm.h"
#include "kernels/plan/planner.h"

namespace gemmd {
namespace {

struct TypePair {
  DType ab, d;
};
constexpr TypePair kTypes[] = {
    {DType::kF16, DType::kF16},  {DType::kF16, DType::kF32}, {DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF32}, {DType::kF32, DType::kF32}, {DType::kF64, DType::kF64},
    {DType::kI8, DType::kI32},
};
constexpr int64_t kPad = 3;  // elements past each row, NaN where the type has one
constexpr std::byte kPoison{0xff};

// The memory of one problem; operands() points into it.
struct Data {
  std::vector<std::byte> a, b, c, bias, d;

  HostOperands operands() {
    return {.a = a.data(), .b = b.data(), .c = c.data(), .bias = bias.data(), .d = d.data()};
  }
};

std::vector<std::byte> Poisoned(int64_t bytes) {
  return std::vector<std::byte>(static_cast<size_t>(bytes), kPoison);
}

StatusOr<std::vector<std::byte>> Fill(const MatrixLayout& layout, int64_t batch, DType type,
                                      std::mt19937_64& random) {
  ASSIGN_OR_RETURN(const int64_t bytes, StorageBytes(layout, batch, type, "self-check"));
  std::vector<std::byte> data = Poisoned(bytes);
  const double scale = type == DType::kI8 ? 128 : 1;
  std::uniform_real_distribution<double> uniform(-scale, scale);
  for (int64_t index = 0; index < batch; ++index) {
    for (int64_t row = 0; row < layout.rows; ++row) {
      for (int64_t col = 0; col < layout.cols; ++col) {
        StoreElement(data.data(), type, index * layout.batch_stride + row * layout.ld + col,
                     uniform(random));
      }
    }
  }
  return data;
}

void PadRows(MatrixLayout& layout) {
  layout.ld += kPad;
  layout.batch_stride = layout.rows * layout.ld + kPad;
}

// `variant` 0 .. 3 goes through the transposes; 1 and 2 have an epilogue where the type takes one.
GemmProblem MakeProblem(TypePair types, int variant, int64_t m, int64_t n, int64_t k,
                        int64_t batch = 2) {
  GemmProblem p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.batch = batch;
  p.op_a = variant & 1 ? Op::kT : Op::kN;
  p.op_b = variant & 2 ? Op::kT : Op::kN;
  p.type_a = p.type_b = types.ab;
  p.type_d = types.d;
  if ((variant == 1 || variant == 2) && types.ab != DType::kI8) {
    p.alpha = 1.25;
    p.beta = -0.5;
    p.bias = variant == 1 ? BiasAxis::kPerColumn : BiasAxis::kPerRow;
    p.act = variant == 1 ? Activation::kGelu : Activation::kSilu;
  }
  p = WithPackedLayouts(p);
  PadRows(p.a);
  PadRows(p.b);
  PadRows(p.c);
  p.b.batch_stride = 0;
  return p;
}

StatusOr<Data> MakeData(const GemmProblem& p, uint64_t seed) {
  std::mt19937_64 random(seed);
  Data data;
  ASSIGN_OR_RETURN(data.a, Fill(p.a, p.batch, p.type_a, random));
  ASSIGN_OR_RETURN(data.b, Fill(p.b, p.batch, p.type_b, random));
  ASSIGN_OR_RETURN(data.c, Fill(p.c, p.batch, p.type_d, random));
  const MatrixLayout bias{1, p.bias_length(), p.bias_length(), 0};
  ASSIGN_OR_RETURN(data.bias, Fill(bias, 1, p.type_d, random));
  return data;
}

Status RunOnce(Backend& backend, const GemmProblem& problem, const Plan& plan,
               const HostOperands& operands) {
  RETURN_IF_ERROR(backend.CheckFits(problem));
  std::optional<LaneLease> lane = backend.TryAcquireLane(problem);
  if (!lane) return Internal("no free lane on an idle backend");
  Mutex mu;
  CondVar finished;
  std::optional<Status> outcome;  // guarded by mu
  const auto done = [&](LaneResult result) {
    MutexLock lock(mu);
    outcome = std::move(result.status);
    finished.NotifyAll();
  };
  RETURN_IF_ERROR((*lane)->Submit(problem, plan, operands, done, {}));
  MutexLock lock(mu);
  while (!outcome) finished.Wait(mu);
  return *std::move(outcome);
}

class Checker {
 public:
  explicit Checker(Backend& backend) : backend_(backend), planner_(backend.traits()) {}

  Status CheckAll() {
    for (const TypePair types : kTypes) {
      for (int row = 0; row < kKernelRows; ++row) RETURN_IF_ERROR(CheckRow(types, row));
    }
    return OkStatus();
  }

 private:
  Status CheckRow(TypePair types, int row) {
    const KernelConfig& config = kKernelTable[row].config;
    if (!TakesTypes(config, MakeProblem(types, 0, 1, 1, 1), backend_.traits())) return OkStatus();
    if (config.family == Family::kEpilogueOnly) return CheckWithoutProduct(types);
    if (config.family == Family::kBlas) {
      RETURN_IF_ERROR(CheckWithoutProduct(types));
      return CheckVariants(types, {.row = row, .stages = {}, .split_k = {}}, 67, 45, 1031);
    }
    if (config.family == Family::kGemv) {
      const PlanConstraints constraints = {.row = row, .stages = {}, .split_k = {}};
      RETURN_IF_ERROR(CheckVariants(types, constraints, 3, 517, 1031));
      return CheckVariants(types, constraints, 517, 1, 1031);
    }
    // An edge tile beside a full one, and a last K tile that is not full. At the most stages the
    // ring wraps; the tile's edges were seen at one stage.
    RETURN_IF_ERROR(CheckVariants(types, {.row = row, .stages = 1, .split_k = {}},
                                  config.block_m + 3, config.block_n + 5, config.block_k + 1));
    int most = config.max_stages;
    while (most > 1 && ResidentBlocks(config, most, backend_.traits()) == 0) --most;
    const PlanConstraints constraints = {.row = row, .stages = most, .split_k = {}};
    const int64_t k = config.block_k * (most + 1) + 3;
    RETURN_IF_ERROR(CheckVariants(types, constraints, 35, 29, k));
    if (!config.ping_pong) return OkStatus();
    // The second consumer has work only where a block has a second tile.
    return CheckVariants(types, constraints, 3, 5, k, backend_.traits().sm_count + 2);
  }

  // A and B are NaN, and must not be read.
  Status CheckWithoutProduct(TypePair types) {
    const bool int8 = types.ab == DType::kI8;  // its alpha is always 1
    GemmProblem problem = MakeProblem(types, 1, 37, 21, int8 ? 0 : 9);
    if (!int8) problem.alpha = 0;
    ASSIGN_OR_RETURN(Data data, MakeData(problem, 1));
    std::fill(data.a.begin(), data.a.end(), kPoison);
    std::fill(data.b.begin(), data.b.end(), kPoison);
    return CheckOne(problem, data, {});
  }

  Status CheckVariants(TypePair types, const PlanConstraints& constraints, int64_t m, int64_t n,
                       int64_t k, int64_t batch = 2) {
    for (int variant = 0; variant < 4; ++variant) {
      const GemmProblem problem = MakeProblem(types, variant, m, n, k, batch);
      ASSIGN_OR_RETURN(Data data, MakeData(problem, static_cast<uint64_t>(variant)));
      RETURN_IF_ERROR(CheckOne(problem, data, constraints));
    }
    return OkStatus();
  }

  Status CheckOne(const GemmProblem& problem, Data& data, const PlanConstraints& constraints) {
    ASSIGN_OR_RETURN(const Plan plan, planner_.PlanFor(problem, constraints));
    ASSIGN_OR_RETURN(const int64_t bytes, ResultBytes(problem));
    data.d = Poisoned(bytes);
    const std::string what = ToString(plan) + " on " + ToString(problem);
    if (const Status status = RunOnce(backend_, problem, plan, data.operands()); !status.ok()) {
      return Status(status.code(), "self-check of " + what + ": " + status.message());
    }
    const Mismatch mismatch = CompareWithReference(problem, data.operands());
    if (mismatch.ok) return OkStatus();
    return Internal("self-check of " + what + ": " + mismatch.ToString());
  }

  Backend& backend_;
  const Planner planner_;
};

}  // namespace

Status SelfCheck(Backend& backend) { return Checker(backend).CheckAll(); }

}  // namespace gemmd
