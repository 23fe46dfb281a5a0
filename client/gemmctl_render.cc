// How gemmctl words and prints what it got.
#include <cstdio>

#include "client/gemmctl.h"

namespace gemmd::ctl {

CLI::Option* AddDType(CLI::App* verb, const std::string& flag, std::string* name,
                      const std::string& help) {
  return verb->add_option(flag, *name, help)
      ->check(CLI::Validator(
          [](std::string& text) {
            return DTypeFromName(text) ? std::string()
                                       : text +
                                             " is not one of f16, bf16, f32, f64, e4m3, "
                                             "e5m2, i8, i32";
          },
          "TYPE"));
}

std::optional<DType> ParseDType(const std::string& name) {
  return name.empty() ? std::nullopt : DTypeFromName(name);
}

Json Seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

double Tflops(const ClientResult& result) {
  const double seconds = std::chrono::duration<double>(result.phases.kernel).count();
  return seconds > 0 ? result.flops / seconds * 1e-12 : 0;
}

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
  const auto known = [](double seconds) { return seconds > 0 ? Json(seconds) : Json::Null(); };
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
      .Set("predicted_seconds", known(plan.predicted_seconds))
      .Set("measured_seconds", known(plan.measured_seconds));
}

Json ToJson(const ClientResult& result) {
  const PhaseTimes& p = result.phases;
  return Json::Object()
      .Set("request_id", result.request_id)
      .Set("backend", result.backend)
      .Set("device", result.device)
      .Set("lane", result.lane)
      .Set("plan", ToJson(result.plan))
      .Set("phases_seconds", Json::Object()
                                 .Set("decode", Seconds(p.decode))
                                 .Set("queue", Seconds(p.queue))
                                 .Set("plan", Seconds(p.plan))
                                 .Set("stage", Seconds(p.stage))
                                 .Set("h2d", Seconds(p.h2d))
                                 .Set("kernel", Seconds(p.kernel))
                                 .Set("d2h", Seconds(p.d2h))
                                 .Set("unstage", Seconds(p.unstage))
                                 .Set("total", Seconds(p.total)))
      .Set("stalls_cycles", ToJson(result.stalls))
      .Set("flops", result.flops)
      .Set("tflops", Tflops(result))
      .Set("attempts", result.attempts)
      .Set("round_trip_seconds", Seconds(result.round_trip));
}

void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::fputs(TableText(rows).c_str(), stdout);
}

void PrintJson(const Json& json) {
  std::printf("%s\n", json.text().c_str());
  std::fflush(stdout);  // a watcher reads line by line
}

}  // namespace gemmd::ctl
