#include "client/tune_report.h"

#include <string>

#include <gtest/gtest.h>

#include "kernels/core/tables.h"

namespace gemmd {
namespace {

ClientTuneProgress Progress() {
  ClientTuneProgress progress;
  progress.done = 20;
  progress.total = 40;
  progress.problem = ParseShape("512x512x512", {})->problem;
  progress.left_seconds = 200;
  progress.best.emplace().kernel = "wgmma";
  progress.best->stages = 4;
  progress.best->split_k = 1;
  progress.best->measured_seconds = 3.3e-6;
  return progress;
}

TEST(TuneReportTest, TheBarShowsShareTimeLeftAndShape) {
  EXPECT_EQ(ProgressBar(Progress(), "square", 200),
            "[############............] 20/40, 3 min 20 s left, square bf16 NN 512x512x512");
  EXPECT_EQ(ProgressBar(Progress(), "square", 40).size(), 40U);
  EXPECT_EQ(ProgressBar(Progress(), "square", -1), "");
}

TEST(TuneReportTest, NonsenseOfAServerKeepsTheBarWhole) {
  ClientTuneProgress progress;
  progress.done = 2147483647;
  progress.total = 1;
  EXPECT_EQ(ProgressBar(progress, "", 99), "[########################] 2147483647/1");
  progress.done = -5;
  EXPECT_EQ(ProgressBar(progress, "", 99), "[........................] -5/1");
  progress.total = 0;
  progress.left_seconds = 1e300;
  EXPECT_EQ(ProgressBar(progress, "", 99), "[........................] -5/0, 277777 h 46 min left");
}

TEST(TuneReportTest, ALineNamesWhatWasFound) {
  ClientTuneProgress progress = Progress();
  EXPECT_EQ(ProgressLine(progress, ""),
            "[20/40] bf16 NN 512x512x512: wgmma, 4 stages, 3.30 us, 81.3 TFLOP/s, 3 min 20 s left");
  progress.best->pair = true;
  progress.best->split_k = 8;
  progress.best->measured_seconds = 0;
  progress.left_seconds.reset();
  EXPECT_EQ(ProgressLine(progress, "a"),
            "[20/40] a bf16 NN 512x512x512: wgmma, 4 stages, 8 parts, pairs");
  progress.best.reset();
  progress.problem.reset();
  EXPECT_EQ(ProgressLine(progress, ""), "[20/40]");
}

TEST(TuneReportTest, ProgressAsJsonHasNullForWhatIsNotKnown) {
  EXPECT_EQ(ToJson(ClientTuneProgress{}, "").text(),
            "{\"done\": 0, \"total\": 0, \"name\": null, \"problem\": null, \"best\": null, "
            "\"left_seconds\": null, \"calibrations\": []}");
}

TEST(TuneReportTest, ACalibrationIsALineForEachKindOfKernel) {
  ClientCalibration found{.ordinal = 1,
                          .device = "NVIDIA A100",
                          .calibration = {.cp_async = {.latency_clocks = 801.4,
                                                       .bytes_per_clock = 60.04,
                                                       .flops_per_clock = 2047.6},
                                          .tma = {}}};
  EXPECT_EQ(CalibrationText(found),
            "calibrated NVIDIA A100 (device 1), per SM\n"
            "  cp.async: latency 801 clocks, 60.0 bytes/clock, 2048 FLOP/clock");
  EXPECT_EQ(ToJson(found).text(),
            "{\"ordinal\": 1, \"device\": \"NVIDIA A100\", \"cp_async\": {\"latency_clocks\": "
            "801.4, \"bytes_per_clock\": 60.04, \"flops_per_clock\": 2047.6}, \"tma\": null}");
  found.calibration.tma = RingCalibration{1000, 64, 4096};
  EXPECT_NE(CalibrationText(found).find(
                "\n  TMA: latency 1000 clocks, 64.0 bytes/clock, 4096 FLOP/clock"),
            std::string::npos);
}

TEST(TuneReportTest, ACalibrationAloneHasASummaryOfItsOwn) {
  TuneSummary summary;
  summary.seconds = 2;
  summary.calibrated = 1;
  EXPECT_EQ(SummaryText(summary), "calibrated in 2 s\n");
  summary.total = summary.done = 3;
  EXPECT_EQ(SummaryText(summary), "tuned 3 of 3 shapes in 2 s\n");
}

TEST(TuneReportTest, TheMeanCountsUnchangedPlansAsOne) {
  TuneSummary summary;
  summary.done = 4;
  summary.total = 5;
  summary.seconds = 61;
  EXPECT_EQ(SummaryText(summary), "tuned 4 of 5 shapes in 1 min 1 s\n");
  summary.compared = 4;
  summary.changed = 2;
  EXPECT_EQ(SummaryText(summary), "tuned 4 of 5 shapes in 1 min 1 s\nplans changed: 2 of 4\n");
  summary.gains = {4, 1};  // the geometric mean of 4, 1, 1, 1 is the root of 2
  EXPECT_EQ(SummaryText(summary),
            "tuned 4 of 5 shapes in 1 min 1 s\nplans changed: 2 of 4; speed over the plans of "
            "before, geometric mean: 1.414, of the 2 that changed and were measured: 2.000\n");
}

TEST(TuneReportTest, TheSummaryAsJsonHasNullForWhatIsNotKnown) {
  EXPECT_EQ(ToJson(TuneSummary{}).text(),
            "{\"done\": 0, \"total\": 0, \"seconds\": 0, \"compared\": 0, \"changed\": null, "
            "\"geometric_mean_speedup\": null, \"geometric_mean_speedup_of_changed\": null, "
            "\"calibrated\": 0}");
}

}  // namespace
}  // namespace gemmd
