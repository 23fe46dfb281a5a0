#include "kernels/plan/planner.h"

#include <algorithm>
#include <cmath>

namespace gemmd {
namespace {

// Constants of the model, in clocks of the highest SM clock. Fitted to the stage sweep of an H200
// (kernels/README.md).
constexpr double kLaunchSeconds = 2.5e-6;
constexpr double kPanelLatencyClocks = 1370;  // L: asked for to readable, under load
constexpr double kStepOverheadClocks = 300;   // O: barrier and first fragments
constexpr double kMmaFlopsPerClock = 2100;    // tensor issue alone
constexpr double kSmemBytesPerClock = 216;    // what fragments and panels add to it
constexpr double kSimtFlopsPerClock = 150;
constexpr double kEpilogueBytesPerClock = 11;  // of D, and again of C

// The same for the TMA kernel, which is alone on its SM and fetches the next tile's first panels
// while it stores the last.
constexpr double kTmaLatencyClocks = 1950;
constexpr double kWgmmaFlopsPerClock = 3500;
constexpr double kTmaBytesPerClock = 50;  // panels into one SM
constexpr double kTmaEpilogueBytesPerClock = 48;

struct TileShape {
  int64_t m_tiles, n_tiles, k_tiles;
  int64_t tiles;  // over the batch
};

TileShape ShapeOf(const KernelConfig& c, const GemmProblem& p) {
  const int64_t m_tiles = CeilDiv(p.m, c.block_m), n_tiles = CeilDiv(p.n, c.block_n);
  return {m_tiles, n_tiles, CeilDiv(p.k, c.block_k), m_tiles * n_tiles * p.batch};
}

// C of the formula in planner.h.
double StepClocks(const KernelConfig& c) {
  const double flops = 2.0 * c.block_m * c.block_n * c.block_k;
  if (c.family == Family::kCpAsyncSimt) return flops / kSimtFlopsPerClock;
  // Every warp reads its own rows of A and columns of B; the panel is written once.
  const double elements =
      1.0 * (c.block_m * c.warps_n + c.block_n * c.warps_m + c.block_m + c.block_n) * c.block_k;
  return flops / kMmaFlopsPerClock + elements * ElementBytes(c) / kSmemBytesPerClock;
}

double WaveClocks(const KernelConfig& c, const GemmProblem& p, const TileShape& shape, int stages,
                  double resident) {
  const double step = StepClocks(c);
  const double period =
      stages == 1 ? std::max(resident * step + kStepOverheadClocks, kPanelLatencyClocks + step)
                  : std::max({resident * step, step + kStepOverheadClocks,
                              kPanelLatencyClocks / (stages - 1)});
  const double tile_bytes = 1.0 * c.block_m * c.block_n * SizeOf(p.type_d);
  const double epilogue = resident * tile_bytes * (p.reads_c() ? 2 : 1) / kEpilogueBytesPerClock;
  return kPanelLatencyClocks + static_cast<double>(shape.k_tiles) * period + epilogue;
}

// The larger of two bounds, but not sharply: near the edge, easing the smaller one still pays.
double SmoothMax(double a, double b) {
  constexpr double kSharpness = 6;
  return std::pow(std::pow(a, kSharpness) + std::pow(b, kSharpness), 1 / kSharpness);
}

// One tile of the TMA kernel.
double TmaTileClocks(const KernelConfig& c, const GemmProblem& p, const TileShape& shape,
                     int stages) {
  const double step = std::max(2.0 * c.block_m * c.block_n * c.block_k / kWgmmaFlopsPerClock,
                               static_cast<double>(StageBytes(c)) / kTmaBytesPerClock);
  const double period =
      stages == 1 ? kTmaLatencyClocks + step : SmoothMax(step, kTmaLatencyClocks / (stages - 1));
  const double tile_bytes = 1.0 * c.block_m * c.block_n * SizeOf(p.type_d);
  return static_cast<double>(shape.k_tiles) * period +
         tile_bytes * (p.reads_c() ? 2 : 1) / kTmaEpilogueBytesPerClock;
}

double UniqueBytes(const GemmProblem& p) {
  const auto copies = [&p](const MatrixLayout& layout) {
    return layout.batch_stride == 0 ? 1.0 : static_cast<double>(p.batch);
  };
  const double a = 1.0 * p.m * p.k * SizeOf(p.type_a) * copies(p.a);
  const double b = 1.0 * p.k * p.n * SizeOf(p.type_b) * copies(p.b);
  const double d = 1.0 * p.m * p.n * SizeOf(p.type_d) * static_cast<double>(p.batch);
  return a + b + d + (p.reads_c() ? d : 0);
}

double PredictSeconds(const KernelConfig& c, const GemmProblem& p, int stages, int resident,
                      const DeviceTraits& traits) {
  const TileShape shape = ShapeOf(c, p);
  const double floor = UniqueBytes(p) / traits.hbm_bytes_per_second;
  if (c.family == Family::kTmaWgmma) {
    const double waves = static_cast<double>(CeilDiv(shape.tiles, traits.sm_count));
    const double clocks = kTmaLatencyClocks + waves * TmaTileClocks(c, p, shape, stages);
    return kLaunchSeconds + SmoothMax(clocks / traits.clock_hz, floor);
  }
  const int64_t wave = int64_t{resident} * traits.sm_count;
  const int64_t full_waves = shape.tiles / wave, rest = shape.tiles % wave;
  double clocks = static_cast<double>(full_waves) * WaveClocks(c, p, shape, stages, resident);
  if (rest > 0) {
    const auto rest_resident = static_cast<double>(CeilDiv(rest, traits.sm_count));
    clocks += WaveClocks(c, p, shape, stages, rest_resident);
  }
  return kLaunchSeconds + std::max(clocks / traits.clock_hz, floor);
}

StageLimit LimitOf(const KernelConfig& c, int stages, int64_t k_tiles, const DeviceTraits& traits) {
  if (stages >= k_tiles) return StageLimit::kKTiles;
  const int more = ResidentBlocks(c, stages + 1, traits);
  if (stages >= c.max_stages || more == 0) return StageLimit::kSharedMemory;
  if (more < ResidentBlocks(c, stages, traits)) return StageLimit::kResidency;
  return StageLimit::kModel;
}

Plan MakePlan(int row, int stages, const GemmProblem& p, const DeviceTraits& traits) {
  const KernelConfig& c = kKernelTable[row].config;
  Plan plan;
  plan.row = row;
  plan.stages = stages;
  plan.resident_blocks = ResidentBlocks(c, stages, traits);
  plan.smem_bytes = SmemBytes(c, stages);
  plan.limit = LimitOf(c, stages, ShapeOf(c, p).k_tiles, traits);
  plan.predicted_seconds = PredictSeconds(c, p, stages, plan.resident_blocks, traits);
  return plan;
}

Plan PlanWithoutRing(int row) {
  Plan plan;
  plan.row = row;
  return plan;
}

std::string RowName(int row) { return std::string(kKernelTable[row].name); }

// What a device with no choice to make answers: the CPU, or a problem without a product.
StatusOr<Plan> OnlyPlan(int row, const PlanConstraints& constraints, const std::string& why) {
  const auto refuse = [&](const std::string& field, const std::string& asked) {
    return InvalidArgument(field, field + "=" + asked + " cannot run: " + why + " takes " +
                                      RowName(row) + " with no stages and no split");
  };
  if (constraints.row && *constraints.row != row) {
    return refuse("plan.kernel", RowName(*constraints.row));
  }
  if (constraints.stages) return refuse("plan.stages", std::to_string(*constraints.stages));
  if (constraints.split_k.value_or(1) != 1) {
    return refuse("plan.split_k", std::to_string(*constraints.split_k));
  }
  Plan plan = PlanWithoutRing(row);
  if (constraints.any()) plan.source = PlanSource::kForced;
  return plan;
}

// Why no kernel meets the constraints: the first that fails on its own.
Status CannotMeet(const PlanConstraints& constraints, const GemmProblem& p,
                  const DeviceTraits& traits) {
  if (constraints.row) {
    const KernelConfig& c = kKernelTable[*constraints.row].config;
    if (!TakesTypes(c, p, traits)) {
      return InvalidArgument("plan.kernel", "plan.kernel=" + RowName(*constraints.row) +
                                                " does not take " + ToString(p) + " on " +
                                                traits.name);
    }
  }
  const std::string asked = std::to_string(constraints.stages.value_or(0));
  int most = 0;
  for (int row = 0; row < kKernelRows; ++row) {
    const KernelConfig& c = kKernelTable[row].config;
    if (constraints.row.value_or(row) != row || !TakesTypes(c, p, traits)) continue;
    for (int stages = 1; stages <= c.max_stages; ++stages) {
      if (ResidentBlocks(c, stages, traits) > 0) most = std::max(most, stages);
    }
  }
  return InvalidArgument(
      "plan.stages", "plan.stages=" + asked + " exceeds the limit " + std::to_string(most) +
                         " of " +
                         (constraints.row ? RowName(*constraints.row) : std::string("any kernel")) +
                         " on " + traits.name);
}

}  // namespace

int ResidentBlocks(const KernelConfig& c, int stages, const DeviceTraits& traits) {
  const int64_t smem = SmemBytes(c, stages);
  if (smem > traits.smem_per_block_bytes || Threads(c) == 0) return 0;
  const int64_t by_smem = traits.smem_per_sm_bytes / (smem + traits.smem_reserved_bytes);
  const int64_t by_registers = traits.registers_per_sm / (RegistersPerThread(c) * Threads(c));
  const int64_t by_threads = traits.threads_per_sm / Threads(c);
  return static_cast<int>(
      std::min({by_smem, by_registers, by_threads, int64_t{traits.blocks_per_sm}}));
}

bool TakesTypes(const KernelConfig& c, const GemmProblem& p, const DeviceTraits& traits) {
  const bool cuda = traits.kind == DeviceKind::kCuda && traits.compute_capability >= 80;
  const bool same = p.type_a == p.type_b && p.mode == ComputeMode::kIeee;
  const bool half = same && (p.type_a == DType::kF16 || p.type_a == DType::kBF16);
  const bool single = same && p.type_a == DType::kF32;
  switch (c.family) {
    case Family::kCpAsyncMma: return cuda && half;
    case Family::kCpAsyncSimt: return cuda && single;
    case Family::kTmaWgmma: return traits.compute_capability == 90 && half;
    case Family::kEpilogueOnly: return cuda && (half || single);
    case Family::kBlas:
      return traits.kind == DeviceKind::kCpu && same &&
             (half || single || p.type_a == DType::kF64 || p.type_a == DType::kI8);
  }
  return false;
}

Status CheckSupported(const GemmProblem& p, const DeviceTraits& traits) {
  for (const KernelRow& row : kKernelTable) {
    if (TakesTypes(row.config, p, traits)) return OkStatus();
  }
  GemmProblem ieee = p;
  ieee.mode = ComputeMode::kIeee;
  if (p.mode != ComputeMode::kIeee && CheckSupported(ieee, traits).ok()) {
    return Unimplemented("problem.compute_mode=" + std::string(Name(p.mode)) +
                         " has no kernel on " + traits.name + "; there is ieee")
        .WithField("problem.compute_mode");
  }
  std::string types(Name(p.type_a));
  if (p.type_b != p.type_a) types += " x " + std::string(Name(p.type_b));
  return Unimplemented("problem.type_a=" + types + " -> " + std::string(Name(p.type_d)) +
                       " in mode " + std::string(Name(p.mode)) + " has no kernel on " + traits.name)
      .WithField("problem.type_a");
}

std::vector<Plan> Planner::Candidates(const GemmProblem& p) const {
  std::vector<Plan> plans;
  if (p.empty() || !CheckSupported(p, traits_).ok()) return plans;
  if (traits_.kind == DeviceKind::kCpu) return {PlanWithoutRing(RowOfFamily(Family::kBlas))};
  if (!p.reads_ab()) return {PlanWithoutRing(RowOfFamily(Family::kEpilogueOnly))};
  for (int row = 0; row < kKernelRows; ++row) {
    const KernelConfig& c = kKernelTable[row].config;
    if (c.max_stages == 0 || !TakesTypes(c, p, traits_)) continue;
    const int64_t k_tiles = ShapeOf(c, p).k_tiles;
    for (int stages = 1; stages <= std::min<int64_t>(c.max_stages, k_tiles); ++stages) {
      if (ResidentBlocks(c, stages, traits_) > 0)
        plans.push_back(MakePlan(row, stages, p, traits_));
    }
  }
  // Stable: of equals, the earlier row and the fewer stages.
  std::stable_sort(plans.begin(), plans.end(), [](const Plan& x, const Plan& y) {
    return x.predicted_seconds < y.predicted_seconds;
  });
  return plans;
}

StatusOr<Plan> Planner::PlanFor(const GemmProblem& p, const PlanConstraints& constraints) const {
  if (p.empty()) return Plan{};
  RETURN_IF_ERROR(CheckSupported(p, traits_));
  if (traits_.kind == DeviceKind::kCpu) {
    return OnlyPlan(RowOfFamily(Family::kBlas), constraints, traits_.name);
  }
  if (!p.reads_ab()) {
    return OnlyPlan(RowOfFamily(Family::kEpilogueOnly), constraints, "alpha=0 or k=0");
  }
  if (constraints.split_k.value_or(1) != 1) {
    return InvalidArgument("plan.split_k",
                           "plan.split_k=" + std::to_string(*constraints.split_k) +
                               " exceeds the limit 1 of every kernel of this build");
  }
  if (constraints.stages.value_or(1) < 1) {
    return InvalidArgument("plan.stages",
                           "plan.stages=" + std::to_string(*constraints.stages) + " is below 1");
  }
  std::optional<Plan> best;
  for (int row = 0; row < kKernelRows; ++row) {
    const KernelConfig& c = kKernelTable[row].config;
    if (c.max_stages == 0 || constraints.row.value_or(row) != row || !TakesTypes(c, p, traits_)) {
      continue;
    }
    // Stages beyond the K tiles never help, but may be asked for.
    const int64_t k_tiles = ShapeOf(c, p).k_tiles;
    const int first = constraints.stages.value_or(1);
    const int last =
        constraints.stages.value_or(static_cast<int>(std::min<int64_t>(c.max_stages, k_tiles)));
    for (int stages = first; stages <= std::min(last, c.max_stages); ++stages) {
      if (ResidentBlocks(c, stages, traits_) == 0) break;
      const Plan plan = MakePlan(row, stages, p, traits_);
      if (!best || plan.predicted_seconds < best->predicted_seconds) best = plan;
    }
  }
  if (!best) return CannotMeet(constraints, p, traits_);
  if (constraints.any()) best->source = PlanSource::kForced;
  if (constraints.stages) best->limit = StageLimit::kForced;
  return *best;
}

}  // namespace gemmd
