// What a study found, as tables, CSV and JSON. Pure functions of what came from the server.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/gemm_client.h"
#include "client/problem_list.h"
#include "kernels/core/json.h"

namespace gemmd {

// One problem at every stage count that was measured.
struct StudySeries {
  std::string name;  // empty: it has none
  GemmProblem problem;
  std::vector<ClientStudyPoint> points;  // by stages
};

// The points of each problem, in the order of `problems`; problems without points are left out.
std::vector<StudySeries> GroupStudy(const std::vector<NamedProblem>& problems,
                                    const std::vector<ClientStudyPoint>& points);

// What stages bought. A single buffer costs a step L + C, its load and its computation; a ring that
// is deep enough costs max(L, C).
struct StudyVerdict {
  int best_stages = 0;
  int enough_stages = 0;  // the fewest within 2 % of the best
  // Time at one stage over the best time; absent: one stage was not measured.
  std::optional<double> single_over_best;
  std::optional<double> predicted_single_over_best;  // likewise, by the model
};

// nullopt where nothing was measured.
std::optional<StudyVerdict> Judge(const StudySeries& series);

// A heading, a row for each stage count and the verdict. "-" is what was not told.
std::string StudyTable(const StudySeries& series);
// A row for each problem; empty for a single one.
std::string StudySummary(const std::vector<StudySeries>& study);
// A heading and a row for each point; times in seconds, waits in cycles, empty where not told.
std::string StudyCsv(const std::vector<StudySeries>& study);
Json StudyJson(const std::vector<StudySeries>& study);

}  // namespace gemmd
