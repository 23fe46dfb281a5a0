#include "client/stall_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "client/client_json.h"
#include "client/plan_table.h"
#include "kernels/core/tables.h"
#include "kernels/core/text.h"

namespace gemmd {
namespace {

using Reasons = std::vector<ClientStallSamples>;

// What a counter grew by: 0 for one that fell.
template <typename T>
T Grown(T before, T now) {
  before = std::max<T>(0, before);
  return now > before ? now - before : T{0};
}

// As a double: counts that a server made up may not fit an integer together.
double Sum(const Reasons& reasons) {
  double sum = 0;
  for (const ClientStallSamples& r : reasons) sum += static_cast<double>(r.samples);
  return sum;
}

std::string Percent(double part, double whole) {
  return whole > 0 ? Fixed(100 * part / whole, 1) : "-";
}

std::string SampleCount(double samples) { return Fixed(samples, 0); }

// "long_scoreboard 41.2, barrier 20.0", in percent of all of them: the first, and as many more as
// fit `columns`.
std::string ReasonsText(const Reasons& reasons, size_t columns) {
  const double all = Sum(reasons);
  std::string text;
  for (const ClientStallSamples& r : reasons) {
    if (r.samples == 0) continue;
    const std::string one = r.reason + " " + Percent(static_cast<double>(r.samples), all);
    if (!text.empty() && text.size() + 2 + one.size() > columns) break;
    text += (text.empty() ? "" : ", ") + one;
  }
  return text;
}

void SortBySamples(Reasons* reasons) {
  std::stable_sort(reasons->begin(), reasons->end(),
                   [](const ClientStallSamples& a, const ClientStallSamples& b) {
                     return a.samples > b.samples;
                   });
}

StallSample Grown(const StallSample& before, const StallSample& now) {
  return {.measured = now.measured,
          .wait_full = Grown(before.wait_full, now.wait_full),
          .wait_empty = Grown(before.wait_empty, now.wait_empty),
          .mainloop = Grown(before.mainloop, now.mainloop),
          .epilogue = Grown(before.epilogue, now.epilogue),
          .k_tiles = Grown(before.k_tiles, now.k_tiles)};
}

using PlanKey = std::pair<std::string, int>;  // kernel, stages

std::map<PlanKey, ClientKernelStatistics> ByPlan(const ClientStatistics& statistics) {
  std::map<PlanKey, ClientKernelStatistics> by_plan;
  for (const ClientKernelStatistics& k : statistics.kernels) by_plan[{k.kernel, k.stages}] = k;
  return by_plan;
}

std::map<std::string, std::map<std::string, int64_t>> ByReason(const ClientStatistics& statistics) {
  std::map<std::string, std::map<std::string, int64_t>> by_reason;
  for (const ClientKernelStallSamples& k : statistics.stall_samples) {
    for (const ClientStallSamples& r : k.reasons) by_reason[k.kernel][r.reason] = r.samples;
  }
  return by_reason;
}

std::vector<ClientKernelStallSamples> SamplesBetween(const ClientStatistics& before,
                                                     const ClientStatistics& now) {
  auto old = ByReason(before);
  std::vector<ClientKernelStallSamples> grown;
  for (const auto& [kernel, reasons] : ByReason(now)) {
    ClientKernelStallSamples samples{kernel, {}};
    for (const auto& [reason, count] : reasons) {
      const int64_t more = Grown(old[kernel][reason], count);
      if (more > 0) samples.reasons.push_back({reason, more});
    }
    SortBySamples(&samples.reasons);
    if (!samples.reasons.empty()) grown.push_back(std::move(samples));
  }
  std::stable_sort(grown.begin(), grown.end(),
                   [](const ClientKernelStallSamples& a, const ClientKernelStallSamples& b) {
                     return Sum(a.reasons) > Sum(b.reasons);
                   });
  return grown;
}

std::string Hex(uint64_t value) {
  std::array<char, 24> text;
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::string Indented(const std::string& lines) {
  std::string text = "  ";
  for (size_t i = 0; i < lines.size(); ++i) {
    text += lines[i];
    if (lines[i] == '\n' && i + 1 < lines.size()) text += "  ";
  }
  return text;
}

// Those of at least 1 %, and one row for the rest.
std::string ReasonTable(const ClientFunctionProfile& function) {
  const auto all = static_cast<double>(function.samples);
  std::vector<std::vector<std::string>> rows = {{"REASON", "SAMPLES", "%"}};
  double rest = 0;
  for (const ClientStallSamples& r : function.reasons) {
    const auto samples = static_cast<double>(r.samples);
    if (samples < 0.01 * all) {
      rest += samples;
    } else if (samples > 0) {
      rows.push_back({r.reason, SampleCount(samples), Percent(samples, all)});
    }
  }
  if (rest > 0) rows.push_back({"all others", SampleCount(rest), Percent(rest, all)});
  return rows.size() > 1 ? TableText(rows) : "";
}

// The fullest, and a line on the rest.
std::string RangeTable(const ClientFunctionProfile& function) {
  constexpr size_t kShown = 12;
  constexpr size_t kReasonColumns = 44;
  const auto all = static_cast<double>(function.samples);
  std::vector<std::vector<std::string>> rows = {
      {"OFFSETS", "%", "WHAT", "REASONS, % OF THE RANGE"}};
  double rest = 0;
  int64_t left_out = 0;
  for (const ClientProgramRange& range : function.ranges) {
    const auto samples = static_cast<double>(range.samples);
    if (rows.size() > kShown || samples == 0) {
      rest += samples;
      ++left_out;
      continue;
    }
    rows.push_back({Hex(range.first_offset) + "-" + Hex(range.last_offset), Percent(samples, all),
                    range.note.empty() ? "-" : range.note,
                    ReasonsText(range.reasons, kReasonColumns)});
  }
  if (rows.size() == 1) return "";
  std::string text = TableText(rows);
  if (rest > 0) {
    text += Count(left_out, "more range") + ": " + Percent(rest, all) + " %\n";
  }
  return text;
}

Json ReasonsJson(const Reasons& reasons) {
  Json array = Json::Array();
  for (const ClientStallSamples& r : reasons) {
    array.Add(Json::Object().Set("reason", r.reason).Set("samples", r.samples));
  }
  return array;
}

Json KnownRate(double amount, double seconds) {
  return seconds > 0 ? Json(amount / seconds) : Json::Null();
}

}  // namespace

std::string MainloopShare(const StallSample& stalls, uint64_t wait) {
  if (!stalls.measured) return "-";
  return Percent(static_cast<double>(wait), static_cast<double>(stalls.mainloop));
}

std::optional<StallInterval> Between(const ClientStatistics& before, const ClientStatistics& now) {
  if (now.uptime_seconds < before.uptime_seconds || now.admitted < before.admitted) {
    return std::nullopt;
  }
  const std::map<PlanKey, ClientKernelStatistics> was = ByPlan(before), is = ByPlan(now);
  StallInterval interval{
      .seconds = now.uptime_seconds - before.uptime_seconds,
      .uptime_seconds = now.uptime_seconds,
      .pc_sampling_up = now.pc_sampling_up,
      .pc_sampled_seconds = std::max(0.0, now.pc_sampled_seconds - before.pc_sampled_seconds),
      .kernels = {},
      .stall_samples = SamplesBetween(before, now)};
  for (const auto& [plan, old] : was) {
    const auto found = is.find(plan);
    if (found == is.end() || found->second.launches < old.launches) return std::nullopt;
  }
  for (const auto& [plan, kernel] : is) {
    const auto found = was.find(plan);
    const ClientKernelStatistics old =
        found != was.end() ? found->second : ClientKernelStatistics{};
    ClientKernelStatistics grown = kernel;
    grown.launches = Grown(old.launches, kernel.launches);
    grown.kernel_seconds = std::max(0.0, kernel.kernel_seconds - old.kernel_seconds);
    grown.stalls = Grown(old.stalls, kernel.stalls);
    if (grown.launches > 0) interval.kernels.push_back(std::move(grown));
  }
  std::stable_sort(interval.kernels.begin(), interval.kernels.end(),
                   [](const ClientKernelStatistics& a, const ClientKernelStatistics& b) {
                     return a.kernel_seconds > b.kernel_seconds;
                   });
  return interval;
}

std::string StallText(const StallInterval& interval) {
  std::string text =
      Time(interval.seconds) + ", up " + LongTime(interval.uptime_seconds) +
      (interval.pc_sampled_seconds > 0 ? ", sampled " + Time(interval.pc_sampled_seconds) : "");
  if (interval.kernels.empty()) {
    text += ": no kernel was launched\n";
  } else {
    std::vector<std::vector<std::string>> rows = {
        {"KERNEL", "S", "LAUNCHES/s", "TIME %", "FULL %", "EMPTY %"}};
    for (const ClientKernelStatistics& k : interval.kernels) {
      const auto launches = static_cast<double>(k.launches);
      rows.push_back({k.kernel, std::to_string(k.stages),
                      interval.seconds > 0 ? Fixed(launches / interval.seconds, 1) : "-",
                      Percent(k.kernel_seconds, interval.seconds),
                      MainloopShare(k.stalls, k.stalls.wait_full),
                      MainloopShare(k.stalls, k.stalls.wait_empty)});
    }
    text += "\n" + TableText(rows);
  }
  if (interval.stall_samples.empty()) return text;
  constexpr size_t kReasonColumns = 60;
  std::vector<std::vector<std::string>> rows = {{"KERNEL", "SAMPLES", "REASONS, % OF SAMPLES"}};
  for (const ClientKernelStallSamples& k : interval.stall_samples) {
    rows.push_back({k.kernel, SampleCount(Sum(k.reasons)), ReasonsText(k.reasons, kReasonColumns)});
  }
  return text + TableText(rows);
}

Json ToJson(const StallInterval& interval) {
  Json kernels = Json::Array();
  for (const ClientKernelStatistics& k : interval.kernels) {
    kernels.Add(Json::Object()
                    .Set("kernel", k.kernel)
                    .Set("stages", k.stages)
                    .Set("launches", k.launches)
                    .Set("launches_per_second",
                         KnownRate(static_cast<double>(k.launches), interval.seconds))
                    .Set("kernel_seconds", k.kernel_seconds)
                    .Set("share_of_interval", KnownRate(k.kernel_seconds, interval.seconds))
                    .Set("stalls_cycles", ToJson(k.stalls)));
  }
  return Json::Object()
      .Set("seconds", interval.seconds)
      .Set("uptime_seconds", interval.uptime_seconds)
      .Set("kernels", kernels)
      .Set("pc_sampling_up", interval.pc_sampling_up)
      .Set("pc_sampled_seconds", interval.pc_sampled_seconds)
      .Set("stall_samples", ToJson(interval.stall_samples));
}

Json ToJson(const std::vector<ClientKernelStallSamples>& stall_samples) {
  Json array = Json::Array();
  for (const ClientKernelStallSamples& k : stall_samples) {
    array.Add(Json::Object().Set("kernel", k.kernel).Set("reasons", ReasonsJson(k.reasons)));
  }
  return array;
}

std::string ProfileText(const GemmProblem& problem, const ClientProfile& profile) {
  double all = 0;
  for (const ClientFunctionProfile& f : profile.functions) all += static_cast<double>(f.samples);
  std::string text = ToString(problem) + ", chosen by: " + profile.plan.source + "\n";
  text += PlanTable({profile.plan});
  text += profile.median_seconds > 0
              ? "a launch took " + Time(profile.median_seconds) + ", the median while sampled; "
              : "no launch was timed; ";
  text += SampleCount(all) + " samples\n";
  if (profile.dropped_samples > 0) {
    text +=
        "the hardware dropped " + Count(profile.dropped_samples, "sample") + " for want of room\n";
  }
  for (const ClientFunctionProfile& f : profile.functions) {
    const auto samples = static_cast<double>(f.samples);
    text += "\n" + f.kernel + ": " + SampleCount(samples) + " samples, " + Percent(samples, all) +
            " % of all\n";
    for (const std::string& table : {ReasonTable(f), RangeTable(f)}) {
      if (!table.empty()) text += Indented(table);
    }
  }
  return text;
}

Json ProfileJson(const GemmProblem& problem, const ClientProfile& profile) {
  Json functions = Json::Array();
  for (const ClientFunctionProfile& f : profile.functions) {
    Json ranges = Json::Array();
    for (const ClientProgramRange& range : f.ranges) {
      ranges.Add(Json::Object()
                     .Set("first_offset", range.first_offset)
                     .Set("last_offset", range.last_offset)
                     .Set("samples", range.samples)
                     .Set("note", range.note.empty() ? Json::Null() : Json(range.note))
                     .Set("reasons", ReasonsJson(range.reasons)));
    }
    functions.Add(Json::Object()
                      .Set("kernel", f.kernel)
                      .Set("samples", f.samples)
                      .Set("reasons", ReasonsJson(f.reasons))
                      .Set("ranges", ranges));
  }
  return Json::Object()
      .Set("problem", ToString(problem))
      .Set("plan", ToJson(profile.plan))
      .Set("median_seconds", KnownSeconds(profile.median_seconds))
      .Set("dropped_samples", profile.dropped_samples)
      .Set("functions", functions);
}

}  // namespace gemmd
