#include "kernels/plan/planner.h"

#include <algorithm>

#include "kernels/core/checked.h"
#include "kernels/plan/cost_model.h"
#include "kernels/plan/gemv_shape.h"

namespace gemmd {
namespace {

// `of_use`: as StagesOfUse().
StageLimit LimitOf(const KernelConfig& c, int stages, int64_t of_use, const DeviceTraits& traits) {
  if (stages >= of_use) return StageLimit::kKTiles;
  const int more = ResidentBlocks(c, stages + 1, traits);
  if (stages >= c.max_stages || more == 0) return StageLimit::kSharedMemory;
  if (more < ResidentBlocks(c, stages, traits)) return StageLimit::kResidency;
  return StageLimit::kModel;
}

// Whether each tile's K steps may be computed in that many parts.
bool CanSplit(const KernelConfig& c, const GemmProblem& p, int parts) {
  if (c.family != Family::kTmaWgmma || c.ping_pong) return false;
  if (parts < 2 || parts > ShapeOf(c, p).k_tiles) return false;
  const std::optional<int64_t> bytes = CheckedMul(
      CheckedMul(CheckedMul(p.m, PartPitch(p.n)), p.batch), parts * int64_t{sizeof(float)});
  return parts <= kMaxParts && bytes && *bytes <= kWorkspaceBytes;
}

// The most parts that the row can compute a problem's tiles in.
int MostParts(const KernelConfig& c, const GemmProblem& p) {
  int most = 1;
  for (int parts = 2; parts <= kMaxParts; ++parts) {
    if (CanSplit(c, p, parts)) most = parts;
  }
  return most;
}

enum class Search : uint8_t { kAll, kFastest };

// Numbers of parts that are worth a look: one, and those that give SMs work that would be idle. The
// fastest plan that has parts at all has them for more than a few SMs.
std::vector<int> PartsToTry(const KernelConfig& c, const GemmProblem& p, Search which,
                            const DeviceTraits& traits) {
  std::vector<int> parts = {1};
  if (c.family != Family::kTmaWgmma || c.ping_pong) return parts;
  const TileShape shape = ShapeOf(c, p);
  const int64_t fill = std::min<int64_t>({traits.sm_count / shape.tiles, shape.k_tiles, kMaxParts});
  for (int split = 2; split < fill; split *= 2) {
    if (which == Search::kAll || 16 * split > fill) parts.push_back(split);
  }
  if (fill > 1) parts.push_back(static_cast<int>(fill));
  return parts;
}

Plan PlanWithoutRing(int row) {
  Plan plan;
  plan.row = row;
  return plan;
}

double WavesOf(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
               const DeviceTraits& traits) {
  const double blocks = c.family == Family::kGemv
                            ? static_cast<double>(GemvShapeOf(p, traits.sm_count).blocks()) *
                                  static_cast<double>(p.batch)
                            : static_cast<double>(ShapeOf(c, p).tiles * plan.split_k);
  return blocks / (1.0 * plan.resident_blocks * traits.sm_count);
}

int ResidentBlocksOf(const KernelConfig& c, const GemmProblem& p, int stages,
                     const DeviceTraits& traits) {
  return c.family == Family::kGemv ? GemvShapeOf(p, traits.sm_count).blocks_per_sm()
                                   : ResidentBlocks(c, stages, traits);
}

// Fills in what follows from row, stages, split_k and pair: first what plans are compared by.
void Predict(Plan& plan, int resident_blocks, const GemmProblem& p, const DeviceTraits& traits) {
  const KernelConfig& c = kKernelTable[plan.row].config;
  plan.resident_blocks = resident_blocks;
  plan.predicted_seconds = PredictSeconds(c, p, plan, traits);
}

Plan FillInRest(Plan plan, const GemmProblem& p, const DeviceTraits& traits) {
  const KernelConfig& c = kKernelTable[plan.row].config;
  const int stages = plan.stages;
  plan.smem_bytes = SmemBytes(c, stages);
  if (c.max_stages > 0) {
    plan.limit = LimitOf(c, stages, StagesOfUse(c, p, plan, traits), traits);
  }
  plan.registers_per_thread = RegistersPerThread(c);
  plan.waves = WavesOf(c, p, plan, traits);
  plan.early_start = c.family == Family::kTmaWgmma && plan.predicted_seconds < kEarlyStartSeconds;
  return plan;
}

// Whether blocks can work in pairs, and there are neighbouring tiles to share a panel.
bool CanPair(const KernelConfig& c, const GemmProblem& p, const DeviceTraits& traits) {
  if (c.family != Family::kTmaWgmma || traits.resident_pairs == 0) return false;
  const TileShape shape = ShapeOf(c, p);
  return (PairsAlongM(c) ? shape.m_tiles : shape.n_tiles) > 1;
}

// Stage counts that are worth a look. A TMA kernel only gets faster with more stages, but for the
// one that costs its store buffers; so the fastest has as many as there can be, or as leave those.
bool IsWorthALook(const KernelConfig& c, int stages, int last, Search which) {
  if (which == Search::kAll || c.family != Family::kTmaWgmma || stages == last) return true;
  return StoresTileAtOnce(c, stages) && !StoresTileAtOnce(c, stages + 1);
}

// A tile of one warp is for batches of products that fit it; of more tiles an SM has too many to
// feed one by one.
bool IsForOthers(const KernelConfig& c, const GemmProblem& p) {
  return Threads(c) == 32 && (p.m > c.block_m || p.n > c.block_n);
}

// Visits every plan that meets the constraints, with its prediction and without the rest, of equals
// the earlier row, the fewer parts and the fewer stages first.
template <typename Visit>
void ForEachPlan(const GemmProblem& p, const PlanConstraints& constraints, Search which,
                 const DeviceTraits& traits, Visit visit) {
  for (int row = 0; row < kKernelRows; ++row) {
    const KernelConfig& c = kKernelTable[row].config;
    if (constraints.row.value_or(row) != row || !TakesTypes(c, p, traits)) continue;
    if (!constraints.row && IsForOthers(c, p)) continue;
    if (c.max_stages == 0) {
      if (c.family == Family::kGemv && !constraints.stages &&
          constraints.split_k.value_or(1) == 1) {
        Plan plan = PlanWithoutRing(row);
        Predict(plan, ResidentBlocksOf(c, p, 0, traits), p, traits);
        visit(plan);
      }
      continue;
    }
    std::vector<int> resident(static_cast<size_t>(c.max_stages) + 1);  // by stages
    for (int stages = 1; stages <= c.max_stages; ++stages) {
      resident[static_cast<size_t>(stages)] = ResidentBlocks(c, stages, traits);
    }
    const std::vector<int> all = constraints.split_k ? std::vector<int>{*constraints.split_k}
                                                     : PartsToTry(c, p, which, traits);
    for (const int parts : all) {
      if (parts != 1 && !CanSplit(c, p, parts)) continue;
      for (const bool pair : {false, true}) {
        if (pair && !CanPair(c, p, traits)) continue;
        Plan plan;
        plan.row = row, plan.split_k = parts, plan.pair = pair;
        // Stages beyond these never help, but may be asked for.
        const int64_t of_use = which == Search::kAll ? StepsOfBlock(c, p, plan, traits)
                                                     : StagesOfUse(c, p, plan, traits);
        const int first = std::max(constraints.stages.value_or(1), 1);
        const int most = static_cast<int>(std::min<int64_t>(c.max_stages, of_use));
        int last = std::min(constraints.stages.value_or(most), c.max_stages);
        while (last >= first && resident[static_cast<size_t>(last)] == 0) --last;
        for (plan.stages = first; plan.stages <= last; ++plan.stages) {
          if (!IsWorthALook(c, plan.stages, last, which)) continue;
          Predict(plan, resident[static_cast<size_t>(plan.stages)], p, traits);
          visit(plan);
        }
      }
    }
  }
}

// Whether row, stages, split_k and pair of `plan` can run. Precondition: the device has a kernel
// for the problem, which is not empty.
bool CanRun(const Plan& plan, const GemmProblem& p, const DeviceTraits& traits) {
  if (plan.row < 0 || plan.row >= kKernelRows) return false;
  const KernelConfig& c = kKernelTable[plan.row].config;
  if (!TakesTypes(c, p, traits)) return false;
  if (traits.kind != DeviceKind::kCpu && p.reads_ab() == (c.family == Family::kEpilogueOnly)) {
    return false;
  }
  if (c.max_stages == 0) return plan.stages == 0 && plan.split_k == 1 && !plan.pair;
  return plan.stages >= 1 && plan.stages <= c.max_stages &&
         ResidentBlocks(c, plan.stages, traits) > 0 &&
         (plan.split_k == 1 || CanSplit(c, p, plan.split_k)) &&
         (!plan.pair || CanPair(c, p, traits));
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

std::string KernelsAsked(const PlanConstraints& constraints) {
  return constraints.row ? RowName(*constraints.row) : "any kernel";
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
    if (c.family == Family::kEpilogueOnly) {
      return InvalidArgument("plan.kernel", "plan.kernel=" + RowName(*constraints.row) +
                                                " takes products with alpha=0 or k=0 alone, not " +
                                                ToString(p));
    }
  }
  // The most stages of any such kernel, and the most parts of one that takes the stages asked for.
  int stages = 0, parts = 1;
  for (int row = 0; row < kKernelRows; ++row) {
    const KernelConfig& c = kKernelTable[row].config;
    if (constraints.row.value_or(row) != row || !TakesTypes(c, p, traits)) continue;
    int most = c.max_stages;
    while (most > 0 && ResidentBlocks(c, most, traits) == 0) --most;
    stages = std::max(stages, most);
    if (most >= constraints.stages.value_or(1)) parts = std::max(parts, MostParts(c, p));
  }
  if (constraints.stages.value_or(0) > stages) {
    return InvalidArgument("plan.stages", "plan.stages=" + std::to_string(*constraints.stages) +
                                              " exceeds the limit " + std::to_string(stages) +
                                              " of " + KernelsAsked(constraints) + " on " +
                                              traits.name);
  }
  if (!constraints.split_k) {
    return InvalidArgument("plan.kernel", "plan.kernel=" + KernelsAsked(constraints) +
                                              " does not fit the shared memory of " + traits.name +
                                              ", " + std::to_string(traits.smem_per_block_bytes) +
                                              " bytes a block");
  }
  const std::string at =
      constraints.stages ? " at " + std::to_string(*constraints.stages) + " stages" : "";
  return InvalidArgument("plan.split_k", "plan.split_k=" + std::to_string(*constraints.split_k) +
                                             " is not from 1 to the limit " +
                                             std::to_string(parts) + " of " +
                                             KernelsAsked(constraints) + at + " for " +
                                             ToString(p) + " on " + traits.name);
}

}  // namespace

int ResidentBlocks(const KernelConfig& c, int stages, const DeviceTraits& traits) {
  const int64_t smem = SmemBytes(c, stages);
  if (smem > traits.smem_per_block_bytes || Threads(c) == 0) return 0;
  const int64_t by_smem = traits.smem_per_sm_bytes / (smem + traits.smem_reserved_bytes);
  // A warp's registers lie in one of the SM's four parts.
  constexpr int kParts = 4, kWarp = 32;
  const int64_t warps =
      kParts * (traits.registers_per_sm / kParts / (RegistersPerThread(c) * kWarp));
  const int64_t by_registers = warps / (Threads(c) / kWarp);
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
    case Family::kGemv: return cuda && half && HasFewVectors(p);
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

std::vector<Plan> Planner::Candidates(const GemmProblem& p,
                                      const PlanConstraints& constraints) const {
  std::vector<Plan> plans;
  if (p.empty() || !CheckSupported(p, traits_).ok()) return plans;
  if (traits_.kind == DeviceKind::kCpu) return {PlanWithoutRing(RowOfFamily(Family::kBlas))};
  if (!p.reads_ab()) return {PlanWithoutRing(RowOfFamily(Family::kEpilogueOnly))};
  ForEachPlan(p, constraints, Search::kAll, traits_,
              [&](const Plan& plan) { plans.push_back(FillInRest(plan, p, traits_)); });
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
  if (constraints.stages.value_or(1) < 1) {
    return InvalidArgument("plan.stages",
                           "plan.stages=" + std::to_string(*constraints.stages) + " is below 1");
  }
  std::optional<Plan> best;
  ForEachPlan(p, constraints, Search::kFastest, traits_, [&](const Plan& plan) {
    if (!best || plan.predicted_seconds < best->predicted_seconds) best = plan;
  });
  if (!best) return CannotMeet(constraints, p, traits_);
  *best = FillInRest(*best, p, traits_);
  if (constraints.any()) best->source = PlanSource::kForced;
  if (constraints.stages) best->limit = StageLimit::kForced;
  return *best;
}

StatusOr<Plan> Planner::Complete(const GemmProblem& p, const Plan& choice) const {
  RETURN_IF_ERROR(CheckSupported(p, traits_));
  if (p.empty() || !CanRun(choice, p, traits_)) {
    const std::string name =
        choice.row < kKernelRows ? ToString(choice) : "row " + std::to_string(choice.row);
    return InvalidArgument("plan",
                           "plan=" + name + " cannot run " + ToString(p) + " on " + traits_.name);
  }
  Plan plan;
  plan.row = choice.row, plan.stages = choice.stages;
  plan.split_k = choice.split_k, plan.pair = choice.pair;
  const KernelConfig& c = kKernelTable[plan.row].config;
  if (c.family == Family::kBlas || c.family == Family::kEpilogueOnly) return plan;
  Predict(plan, ResidentBlocksOf(c, p, plan.stages, traits_), p, traits_);
  return FillInRest(plan, p, traits_);
}

std::optional<Plan> Planner::FastestBut(const GemmProblem& p, std::span<const Plan> but) const {
  std::optional<Plan> best;
  if (!p.reads_ab() || traits_.kind == DeviceKind::kCpu) return best;
  ForEachPlan(p, {}, Search::kFastest, traits_, [&](const Plan& plan) {
    if (best && plan.predicted_seconds >= best->predicted_seconds) return;
    const auto same = [&plan](const Plan& other) { return SameLaunch(plan, other); };
    if (std::none_of(but.begin(), but.end(), same)) best = plan;
  });
  if (best) *best = FillInRest(*best, p, traits_);
  return best;
}

}  // namespace gemmd
