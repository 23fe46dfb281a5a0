#include "client/client_json.h"

namespace gemmd {

Json KnownSeconds(double seconds) { return seconds > 0 ? Json(seconds) : Json::Null(); }

Json ToJson(const StallSample& stalls) {
  if (!stalls.measured) return Json::Null();
  return Json::Object()
      .Set("wait_full", stalls.wait_full)
      .Set("wait_empty", stalls.wait_empty)
      .Set("mainloop", stalls.mainloop)
      .Set("epilogue", stalls.epilogue)
      .Set("k_tiles", stalls.k_tiles);
}

Json ToJson(const ClientPlan& plan) {
  return Json::Object()
      .Set("kernel", plan.kernel)
      .Set("stages", plan.stages)
      .Set("split_k", plan.split_k)
      .Set("limit", plan.limit)
      .Set("source", plan.source)
      .Set("pair", plan.pair)
      .Set("resident_blocks", plan.resident_blocks)
      .Set("smem_bytes", plan.smem_bytes)
      .Set("registers", plan.registers)
      .Set("waves", plan.waves)
      .Set("predicted_seconds", KnownSeconds(plan.predicted_seconds))
      .Set("measured_seconds", KnownSeconds(plan.measured_seconds));
}

}  // namespace gemmd
