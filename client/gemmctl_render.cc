// How gemmctl words and prints what it got.
#include <algorithm>
#include <array>
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

DType DefaultResultType(DType type_a) {
  switch (type_a) {
    case DType::kF8E4M3:
    case DType::kF8E5M2: return DType::kBF16;
    case DType::kI8: return DType::kI32;
    default: return type_a;
  }
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
      .Set("resident_blocks", plan.resident_blocks)
      .Set("smem_bytes", plan.smem_bytes)
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

namespace {

std::string Scaled(double value, const char* unit) {
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), "%.*f %s", value < 10 ? 2 : 1, value, unit);
  return text.data();
}

}  // namespace

std::string Bytes(int64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return Scaled(value, units[unit]);
}

std::string Time(double seconds) {
  if (seconds < 1e-3) return Scaled(seconds * 1e6, "us");
  if (seconds < 1) return Scaled(seconds * 1e3, "ms");
  return Scaled(seconds, "s");
}

void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    std::printf("%s\n", line.c_str());
  }
}

void PrintJson(const Json& json) {
  std::printf("%s\n", json.text().c_str());
  std::fflush(stdout);  // a watcher reads line by line
}

}  // namespace gemmd::ctl
