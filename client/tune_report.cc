#include "client/tune_report.h"

#include <algorithm>
#include <cmath>

#include "client/client_json.h"
#include "kernels/core/tables.h"

namespace gemmd {
namespace {

std::string Count(const ClientTuneProgress& progress) {
  return std::to_string(progress.done) + "/" + std::to_string(progress.total);
}

// With `unchanged` ones, each of which counts as 1. Nothing: 1.
double GeometricMean(const std::vector<double>& gains, int unchanged) {
  double logs = 0;
  for (const double gain : gains) logs += std::log(gain);
  const double count = static_cast<double>(gains.size()) + unchanged;
  return count > 0 ? std::exp(logs / count) : 1;
}

}  // namespace

std::string TitleOf(const std::string& name, const GemmProblem& problem) {
  return (name.empty() ? "" : name + " ") + ProblemText(problem);
}

std::string ProgressBar(const ClientTuneProgress& progress, const std::string& name, int columns) {
  constexpr int kWidth = 24;
  const double share = progress.total > 0
                           ? std::clamp(static_cast<double>(progress.done) / progress.total, 0., 1.)
                           : 0;
  const int full = static_cast<int>(share * kWidth);
  std::string text = "[" + std::string(static_cast<size_t>(full), '#') +
                     std::string(static_cast<size_t>(kWidth - full), '.') + "] " + Count(progress);
  // What is left stands before the shape: a narrow terminal cuts the end.
  if (progress.left_seconds) text += ", " + LongTime(*progress.left_seconds) + " left";
  if (progress.problem) text += ", " + TitleOf(name, *progress.problem);
  return text.substr(0, static_cast<size_t>(std::max(columns, 0)));
}

std::string ProgressLine(const ClientTuneProgress& progress, const std::string& name) {
  std::string text = "[" + Count(progress) + "]";
  if (progress.problem) text += " " + TitleOf(name, *progress.problem);
  std::string separator = ": ";
  const auto add = [&](const std::string& part) {
    text += separator + part;
    separator = ", ";
  };
  if (progress.best) {
    const ClientPlan& best = *progress.best;
    add(best.kernel);
    if (best.stages > 0) add(std::to_string(best.stages) + " stages");
    if (best.split_k > 1) add(std::to_string(best.split_k) + " parts");
    if (best.pair) add("pairs");
    if (best.measured_seconds > 0) {
      add(Time(best.measured_seconds));
      if (progress.problem) {
        add(TflopsText(*progress.problem, best.measured_seconds) + " TFLOP/s");
      }
    }
  }
  if (progress.left_seconds) add(LongTime(*progress.left_seconds) + " left");
  return text;
}

Json ToJson(const ClientTuneProgress& progress, const std::string& name) {
  Json calibrations = Json::Array();
  for (const ClientCalibration& found : progress.calibrations) calibrations.Add(ToJson(found));
  return Json::Object()
      .Set("done", progress.done)
      .Set("total", progress.total)
      .Set("name", name.empty() ? Json::Null() : Json(name))
      .Set("problem", progress.problem ? Json(ProblemText(*progress.problem)) : Json::Null())
      .Set("best", progress.best ? ToJson(*progress.best) : Json::Null())
      .Set("left_seconds", progress.left_seconds ? Json(*progress.left_seconds) : Json::Null())
      .Set("calibrations", calibrations);
}

std::string CalibrationText(const ClientCalibration& found) {
  const auto line = [](const char* kind, const RingCalibration& ring) {
    return std::string("\n  ") + kind + ": latency " + Fixed(ring.latency_clocks, 0) + " clocks, " +
           Fixed(ring.bytes_per_clock, 1) + " bytes/clock, " + Fixed(ring.flops_per_clock, 0) +
           " FLOP/clock";
  };
  std::string text =
      "calibrated " + found.device + " (device " + std::to_string(found.ordinal) + "), per SM";
  text += line("cp.async", found.calibration.cp_async);
  if (found.calibration.tma) text += line("TMA", *found.calibration.tma);
  return text;
}

Json ToJson(const ClientCalibration& found) {
  const auto ring = [](const RingCalibration& figures) {
    return Json::Object()
        .Set("latency_clocks", figures.latency_clocks)
        .Set("bytes_per_clock", figures.bytes_per_clock)
        .Set("flops_per_clock", figures.flops_per_clock);
  };
  const Calibration& calibration = found.calibration;
  return Json::Object()
      .Set("ordinal", found.ordinal)
      .Set("device", found.device)
      .Set("cp_async", ring(calibration.cp_async))
      .Set("tma", calibration.tma ? ring(*calibration.tma) : Json::Null());
}

bool SamePlan(const ClientPlan& a, const ClientPlan& b) {
  return a.kernel == b.kernel && a.stages == b.stages && a.split_k == b.split_k && a.pair == b.pair;
}

std::string SummaryText(const TuneSummary& summary) {
  if (summary.total == 0 && summary.calibrated > 0) {
    return "calibrated in " + LongTime(summary.seconds) + "\n";
  }
  std::string text = "tuned " + std::to_string(summary.done) + " of " +
                     std::to_string(summary.total) + " shapes in " + LongTime(summary.seconds) +
                     "\n";
  if (summary.compared == 0) return text;
  text += "plans changed: " + std::to_string(summary.changed) + " of " +
          std::to_string(summary.compared);
  if (!summary.gains.empty()) {
    const int unchanged = summary.compared - summary.changed;
    text += "; speed over the plans of before, geometric mean: " +
            Fixed(GeometricMean(summary.gains, unchanged), 3) + ", of the " +
            std::to_string(summary.gains.size()) +
            " that changed and were measured: " + Fixed(GeometricMean(summary.gains, 0), 3);
  }
  return text + "\n";
}

Json ToJson(const TuneSummary& summary) {
  const int unchanged = summary.compared - summary.changed;
  const bool known = summary.compared > 0;
  const bool measured = !summary.gains.empty();
  return Json::Object()
      .Set("done", summary.done)
      .Set("total", summary.total)
      .Set("seconds", summary.seconds)
      .Set("compared", summary.compared)
      .Set("changed", known ? Json(summary.changed) : Json::Null())
      .Set("geometric_mean_speedup",
           measured ? Json(GeometricMean(summary.gains, unchanged)) : Json::Null())
      .Set("geometric_mean_speedup_of_changed",
           measured ? Json(GeometricMean(summary.gains, 0)) : Json::Null())
      .Set("calibrated", summary.calibrated);
}

}  // namespace gemmd
