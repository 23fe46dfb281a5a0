#include "kernels/plan/plan.h"

namespace gemmd {

std::string_view Name(StageLimit limit) {
  switch (limit) {
    case StageLimit::kNone: return "none";
    case StageLimit::kSharedMemory: return "shared_memory";
    case StageLimit::kKTiles: return "k_tiles";
    case StageLimit::kResidency: return "residency";
    case StageLimit::kModel: return "model";
    case StageLimit::kMeasured: return "measured";
    case StageLimit::kForced: return "forced";
  }
  return "none";
}

std::string_view Name(PlanSource source) {
  switch (source) {
    case PlanSource::kModel: return "model";
    case PlanSource::kMeasured: return "measured";
    case PlanSource::kForced: return "forced";
  }
  return "model";
}

std::string ToString(const Plan& plan) {
  std::string text(plan.kernel());
  if (plan.stages > 0) {
    text += " stages " + std::to_string(plan.stages) + " (" + std::string(Name(plan.limit)) + ")";
  }
  if (plan.split_k > 1) text += " split " + std::to_string(plan.split_k);
  if (plan.pair) text += " in pairs";
  return text;
}

}  // namespace gemmd
