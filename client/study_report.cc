#include "client/study_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <unordered_map>

#include "client/client_json.h"
#include "client/stall_report.h"
#include "client/tune_report.h"
#include "kernels/core/tables.h"

namespace gemmd {
namespace {

constexpr double kEnough = 1.02;  // of the best time

std::string Microseconds(double seconds) { return seconds > 0 ? Fixed(seconds * 1e6, 2) : "-"; }

std::string Ratio(const std::optional<double>& ratio) { return ratio ? Fixed(*ratio, 2) : "-"; }

std::string Mark(const StudyVerdict& verdict, int stages) {
  if (stages == verdict.best_stages) {
    return stages == verdict.enough_stages ? "best, fewest within 2 %" : "best";
  }
  return stages == verdict.enough_stages ? "fewest within 2 %" : "";
}

// The kernels that ran, each once.
std::string Kernels(const StudySeries& series) {
  std::string text;
  std::vector<std::string> seen;
  for (const ClientStudyPoint& point : series.points) {
    if (std::find(seen.begin(), seen.end(), point.plan.kernel) != seen.end()) continue;
    seen.push_back(point.plan.kernel);
    text += ", " + point.plan.kernel;
  }
  return text;
}

// A cell as RFC 4180 has it.
std::string Cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char ch : text) {
    if (ch == '"') quoted += '"';
    quoted += ch;
  }
  return quoted + "\"";
}

std::string SixDigits(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

// The shortest text that reads back the same; empty for 0, which is "not told".
std::string Known(double value) { return value > 0 ? Json(value).text() : ""; }

std::string CsvRow(const StudySeries& series, const ClientStudyPoint& point) {
  const GemmProblem& p = series.problem;
  const ClientPlan& plan = point.plan;
  const auto cycles = [&](uint64_t count) {
    return point.stalls.measured ? std::to_string(count) : std::string();
  };
  std::string type(Name(p.type_a));
  if (p.mode != ComputeMode::kIeee) type += " " + std::string(Name(p.mode));
  const std::string cells[] = {
      series.name,
      type,
      std::string(p.op_a == Op::kT ? "T" : "N") + (p.op_b == Op::kT ? "T" : "N"),
      std::to_string(p.m),
      std::to_string(p.n),
      std::to_string(p.k),
      std::to_string(p.batch),
      plan.kernel,
      std::to_string(plan.stages),
      std::to_string(plan.split_k),
      plan.pair ? "1" : "0",
      Known(point.median_seconds),
      Known(point.spread_seconds),
      point.median_seconds > 0 ? SixDigits(Tflops(point.problem, point.median_seconds)) : "",
      Known(plan.predicted_seconds),
      cycles(point.stalls.wait_full),
      cycles(point.stalls.wait_empty),
      cycles(point.stalls.mainloop),
      cycles(point.stalls.epilogue),
      cycles(point.stalls.k_tiles),
      std::to_string(plan.resident_blocks),
      std::to_string(plan.smem_bytes),
      std::to_string(plan.registers),
      Known(plan.waves),
      plan.limit,
  };
  std::string row;
  for (const std::string& cell : cells) row += Cell(cell) + ",";
  row.back() = '\n';
  return row;
}

Json VerdictJson(const StudyVerdict& verdict) {
  const auto known = [](const std::optional<double>& v) { return v ? Json(*v) : Json::Null(); };
  return Json::Object()
      .Set("best_stages", verdict.best_stages)
      .Set("fewest_stages_within_2_percent", verdict.enough_stages)
      .Set("single_buffer_over_best", known(verdict.single_over_best))
      .Set("predicted_single_buffer_over_best", known(verdict.predicted_single_over_best));
}

}  // namespace

std::vector<StudySeries> GroupStudy(const std::vector<NamedProblem>& problems,
                                    const std::vector<ClientStudyPoint>& points) {
  std::unordered_map<std::string, std::vector<ClientStudyPoint>> by_problem;
  for (const ClientStudyPoint& point : points) {
    by_problem[ProblemText(point.problem)].push_back(point);
  }
  std::vector<StudySeries> study;
  for (const NamedProblem& named : problems) {
    auto found = by_problem.extract(ProblemText(named.problem));
    if (found.empty()) continue;  // no points, or the same problem twice
    StudySeries series{named.name, named.problem, std::move(found.mapped())};
    std::stable_sort(series.points.begin(), series.points.end(),
                     [](const ClientStudyPoint& a, const ClientStudyPoint& b) {
                       return a.plan.stages < b.plan.stages;
                     });
    study.push_back(std::move(series));
  }
  return study;
}

std::optional<StudyVerdict> Judge(const StudySeries& series) {
  double best = 0, single = 0, predicted_best = 0, predicted_single = 0;
  StudyVerdict verdict;
  for (const ClientStudyPoint& point : series.points) {
    const double seconds = point.median_seconds, predicted = point.plan.predicted_seconds;
    if (seconds <= 0) continue;
    if (best == 0 || seconds < best) {
      best = seconds;
      verdict.best_stages = point.plan.stages;
    }
    if (predicted > 0 && (predicted_best == 0 || predicted < predicted_best)) {
      predicted_best = predicted;
    }
    if (point.plan.stages == 1) {
      single = seconds;
      predicted_single = predicted;
    }
  }
  if (best == 0) return std::nullopt;
  for (const ClientStudyPoint& point : series.points) {
    if (point.median_seconds <= 0 || point.median_seconds > kEnough * best) continue;
    verdict.enough_stages = point.plan.stages;  // points are by stages: the first is the fewest
    break;
  }
  if (single > 0) verdict.single_over_best = single / best;
  if (predicted_single > 0) verdict.predicted_single_over_best = predicted_single / predicted_best;
  return verdict;
}

std::string StudyTable(const StudySeries& series) {
  const std::optional<StudyVerdict> verdict = Judge(series);
  std::vector<std::vector<std::string>> rows = {{"S", "TIME us", "SPREAD us", "TFLOP/s", "MODEL us",
                                                 "FULL %", "EMPTY %", "BLK/SM", "SMEM KiB", ""}};
  for (const ClientStudyPoint& point : series.points) {
    const bool measured = point.median_seconds > 0;
    rows.push_back({std::to_string(point.plan.stages), Microseconds(point.median_seconds),
                    measured ? Fixed(point.spread_seconds * 1e6, 2) : "-",
                    measured ? TflopsText(point.problem, point.median_seconds) : "-",
                    Microseconds(point.plan.predicted_seconds),
                    MainloopShare(point.stalls, point.stalls.wait_full),
                    MainloopShare(point.stalls, point.stalls.wait_empty),
                    std::to_string(point.plan.resident_blocks),
                    Fixed(static_cast<double>(point.plan.smem_bytes) / 1024, 1),
                    verdict && measured ? Mark(*verdict, point.plan.stages) : ""});
  }
  std::string text = TitleOf(series.name, series.problem) + Kernels(series) + "\n";
  text += TableText(rows);
  if (verdict && verdict->single_over_best) {
    text += "single buffer / best ring = " + Ratio(verdict->single_over_best) +
            " (L + C over max(L, C))";
    if (verdict->predicted_single_over_best) {
      text += ", by the model " + Ratio(verdict->predicted_single_over_best);
    }
    text += "\n";
  }
  return text;
}

std::string StudySummary(const std::vector<StudySeries>& study) {
  if (study.size() < 2) return "";
  std::vector<std::vector<std::string>> rows = {
      {"SHAPE", "K", "BEST S", "FEWEST S WITHIN 2 %", "SINGLE / BEST", "BY THE MODEL"}};
  for (const StudySeries& series : study) {
    const std::optional<StudyVerdict> verdict = Judge(series);
    if (!verdict) continue;
    rows.push_back({TitleOf(series.name, series.problem), std::to_string(series.problem.k),
                    std::to_string(verdict->best_stages), std::to_string(verdict->enough_stages),
                    Ratio(verdict->single_over_best), Ratio(verdict->predicted_single_over_best)});
  }
  return TableText(rows);
}

std::string StudyCsv(const std::vector<StudySeries>& study) {
  std::string text =
      "name,dtype,layout,m,n,k,batch,kernel,stages,split_k,pair,median_seconds,spread_seconds,"
      "tflops,predicted_seconds,wait_full_cycles,wait_empty_cycles,mainloop_cycles,"
      "epilogue_cycles,k_tiles,resident_blocks,smem_bytes,registers,waves,limit\n";
  for (const StudySeries& series : study) {
    for (const ClientStudyPoint& point : series.points) text += CsvRow(series, point);
  }
  return text;
}

Json StudyJson(const std::vector<StudySeries>& study) {
  Json shapes = Json::Array();
  for (const StudySeries& series : study) {
    Json points = Json::Array();
    for (const ClientStudyPoint& point : series.points) {
      points.Add(Json::Object()
                     .Set("plan", ToJson(point.plan))
                     .Set("median_seconds", KnownSeconds(point.median_seconds))
                     .Set("spread_seconds", point.spread_seconds)
                     .Set("tflops", Tflops(point.problem, point.median_seconds))
                     .Set("stalls_cycles", ToJson(point.stalls)));
    }
    const std::optional<StudyVerdict> verdict = Judge(series);
    shapes.Add(Json::Object()
                   .Set("name", series.name.empty() ? Json::Null() : Json(series.name))
                   .Set("problem", ProblemText(series.problem))
                   .Set("m", series.problem.m)
                   .Set("n", series.problem.n)
                   .Set("k", series.problem.k)
                   .Set("verdict", verdict ? VerdictJson(*verdict) : Json::Null())
                   .Set("points", points));
  }
  return Json::Object().Set("shapes", shapes);
}

}  // namespace gemmd
