// What gemmctl tune says, as text and as JSON. Pure functions of what came from the server.
#pragma once

#include <string>
#include <vector>

#include "client/gemm_client.h"
#include "client/problem_list.h"
#include "kernels/core/json.h"

namespace gemmd {

// "decode-16 bf16 NT 16x4096x4096"; without the name where there is none.
std::string TitleOf(const std::string& name, const GemmProblem& problem);

// "[#####.....] 20/40, 3 min 20 s left, square-512 bf16 NN 512x512x512" of at most `columns`
// characters, without an end of line.
std::string ProgressBar(const ClientTuneProgress& progress, const std::string& name, int columns);

// "[20/40] square-512 bf16 NN 512x512x512: tma_wgmma_64x64x128, 4 stages, 3.30 us, 81.3 TFLOP/s,
// 3 min 20 s left"; what is not known is left out.
std::string ProgressLine(const ClientTuneProgress& progress, const std::string& name);

Json ToJson(const ClientTuneProgress& progress, const std::string& name);

// "calibrated NVIDIA H200 (device 0)" and a line for each kind of kernel, indented, with its
// latency, bandwidth and FLOPs.
std::string CalibrationText(const ClientCalibration& found);
Json ToJson(const ClientCalibration& found);

bool SamePlan(const ClientPlan& a, const ClientPlan& b);  // would be launched alike

struct TuneSummary {
  int done = 0, total = 0;
  double seconds = 0;
  int calibrated = 0;  // devices
  // Of the shapes whose plan before is known.
  int compared = 0, changed = 0;
  // Time of the plan before over that of the plan now, of each that changed and was measured.
  std::vector<double> gains;
};

std::string SummaryText(const TuneSummary& summary);
Json ToJson(const TuneSummary& summary);

}  // namespace gemmd
