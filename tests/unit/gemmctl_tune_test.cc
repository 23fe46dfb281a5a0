// gemmctl tune, study and plan as a shell sees them, against a server that answers what a test
// wants.
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "proto/convert.h"
#include "tests/support/gemmctl_fixture.h"

namespace gemmd {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

v1::Problem Shape(int64_t m, int64_t n, int64_t k) {
  GemmProblem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.type_a = problem.type_b = problem.type_d = DType::kBF16;
  return ToProto(WithPackedLayouts(problem));
}

v1::Plan PlanOf(const std::string& kernel, int stages, int measured_ns) {
  v1::Plan plan;
  plan.set_kernel(kernel);
  plan.set_stages(stages);
  plan.set_split_k(1);
  if (measured_ns > 0) plan.mutable_measured()->set_nanos(measured_ns);
  return plan;
}

v1::TuneProgress Progress(int done, int total, const v1::Problem& problem, const v1::Plan& best) {
  v1::TuneProgress progress;
  progress.set_done(done);
  progress.set_total(total);
  *progress.mutable_problem() = problem;
  *progress.mutable_best() = best;
  progress.mutable_time_left()->set_seconds(total - done);
  return progress;
}

v1::StudyPoint Point(const v1::Problem& problem, int stages, int median_ns) {
  v1::StudyPoint point;
  *point.mutable_problem() = problem;
  *point.mutable_plan() = PlanOf("wgmma", stages, 0);
  point.mutable_plan()->mutable_predicted()->set_nanos(median_ns + 100);
  point.mutable_median()->set_nanos(median_ns);
  return point;
}

class GemmctlTuneTest : public GemmctlFixture {
 protected:
  GemmctlTuneTest() : GemmctlFixture("gemmctl_tune_test") {
    std::filesystem::create_directory(folder_);
  }
  ~GemmctlTuneTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_ =
      ::testing::TempDir() + "gemmctl_tune_files." + std::to_string(getpid());
};

TEST_F(GemmctlTuneTest, ATuneShowsALineForEachShapeAndItsSummary) {
  std::ofstream(Path("s.csv")) << "# comment\nnamed,bf16,NN,64,64,64\n";
  fake_.tune = {Progress(1, 3, Shape(64, 64, 64), PlanOf("new", 4, 1000)),
                Progress(2, 3, Shape(1, 2, 3), PlanOf("old", 2, 1000)),
                Progress(3, 3, Shape(9, 9, 9), PlanOf("served", 2, 1000))};
  // Before: "old" for all. After: it took 2 us where "new" takes 1.
  fake_.explain = [](const v1::ExplainPlanRequest&, v1::ExplainPlanResponse* response) {
    *response->mutable_plan() = PlanOf("old", 2, 0);
    *response->add_candidates() = PlanOf("new", 4, 1000);
    *response->add_candidates() = PlanOf("old", 2, 2000);
    return grpc::Status::OK;
  };
  Gemmctl run(Args({"tune", "--shape", "1x2x3", "--shapes", Path("s.csv"), "--served", "--budget",
                    "1m", "--calibrate"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(
      run.output().rfind("[1/3] named bf16 NN 64x64x64: new, 4 stages, 1.00 us, 0.524 TFLOP/s, "
                         "2 s left\n[2/3] bf16 NN 1x2x3: old, 2 stages, ",
                         0),
      0U)
      << run.output();
  EXPECT_NE(run.output().find("tuned 3 of 3 shapes in "), std::string::npos) << run.output();
  // 2 of one and 1 of the other: the geometric mean is the root of 2.
  EXPECT_NE(run.output().find("plans changed: 1 of 2; speed over the plans of before, geometric "
                              "mean: 1.414, of the 1 that changed and were measured: 2.000\n"),
            std::string::npos)
      << run.output();
  const v1::TuneRequest request = fake_.tune_request();
  EXPECT_EQ(request.problems_size(), 2);
  EXPECT_TRUE(request.served());
  EXPECT_TRUE(request.calibrate());
  EXPECT_EQ(request.budget().seconds(), 60);
}

// As many timeouts as there are shapes would add up.
TEST_F(GemmctlTuneTest, ATuneEndsAtTheFirstCallThatNobodyAnswers) {
  std::atomic<int> asked{0};
  fake_.explain = [&](const v1::ExplainPlanRequest&, v1::ExplainPlanResponse*) {
    ++asked;
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "late");
  };
  Gemmctl run(Args({"tune", "--m", "1:9:+1", "--n", "1", "--k", "1"}));
  EXPECT_EQ(run.ExitCode(), 3) << run.output();
  EXPECT_NE(run.output().find("DEADLINE_EXCEEDED: late"), std::string::npos) << run.output();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(fake_.calls(), 0);
}

TEST_F(GemmctlTuneTest, AServerThatFallsSilentIsNotAskedForASummary) {
  std::atomic<int> asked{0};
  fake_.explain = [&](const v1::ExplainPlanRequest&, v1::ExplainPlanResponse* response) {
    ++asked;
    *response->mutable_plan() = PlanOf("old", 2, 0);
    return grpc::Status::OK;
  };
  fake_.tune = {Progress(1, 2, Shape(1, 2, 3), PlanOf("new", 4, 1000))};
  fake_.hold = true;
  server_.health().mute = true;
  Gemmctl run(Args({"--timeout", "0.5", "tune", "--shape", "1x2x3", "--shape", "4x5x6"}));
  EXPECT_EQ(run.ExitCode(), 3) << run.output();
  EXPECT_NE(run.output().find("tuned 1 of 2 shapes"), std::string::npos) << run.output();
  EXPECT_NE(run.output().find("the server fell silent"), std::string::npos) << run.output();
  EXPECT_EQ(asked, 2) << "the plans of before";
}

TEST_F(GemmctlTuneTest, RangesCrossAndTakeTypeAndTransposes) {
  Gemmctl run(Args(
      {"tune", "--m", "1:4:*2", "--n", "4096", "--k", "512,1024", "--dtype", "f16", "--trans-b"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  const v1::TuneRequest request = fake_.tune_request();
  ASSERT_EQ(request.problems_size(), 6);
  EXPECT_EQ(request.problems(5).m(), 4);
  EXPECT_EQ(request.problems(5).n(), 4096);
  EXPECT_EQ(request.problems(5).k(), 1024);
  EXPECT_EQ(request.problems(5).type_a(), v1::DATA_TYPE_F16);
  EXPECT_EQ(request.problems(5).trans_b(), v1::TRANSPOSE_TRANS);
}

TEST_F(GemmctlTuneTest, JsonIsALineForEachProgressAndOneForTheSummary) {
  fake_.tune = {Progress(1, 1, Shape(64, 64, 64), PlanOf("new", 4, 1000))};
  Gemmctl run(Args({"tune", "--served", "--json"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(run.output().rfind("{\"done\": 1, \"total\": 1, \"name\": null, \"problem\": \"bf16 NN "
                               "64x64x64\", \"best\": {\"kernel\": \"new\"",
                               0),
            0U)
      << run.output();
  EXPECT_NE(run.output().find("\n{\"summary\": {\"done\": 1, \"total\": 1, "), std::string::npos)
      << run.output();
}

v1::TuneProgress Calibrated() {
  v1::TuneProgress progress;
  v1::DeviceCalibration* const found = progress.add_calibrations();
  found->set_device("NVIDIA H200");
  found->mutable_calibration()->mutable_cp_async()->set_latency_clocks(900);
  found->mutable_calibration()->mutable_tma()->set_latency_clocks(800);
  return progress;
}

TEST_F(GemmctlTuneTest, ACalibrationNeedsNoShapesAndIsPrintedOnce) {
  fake_.tune = {v1::TuneProgress(), Calibrated(), Calibrated()};
  Gemmctl run(Args({"tune", "--calibrate"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(
      run.output().rfind("calibrated NVIDIA H200 (device 0), per SM\n"
                         "  cp.async: latency 900 clocks, 0.0 bytes/clock, 0 FLOP/clock\n"
                         "  TMA: latency 800 clocks, 0.0 bytes/clock, 0 FLOP/clock\ncalibrated in ",
                         0),
      0U)
      << run.output();
  EXPECT_TRUE(fake_.tune_request().calibrate());
  EXPECT_EQ(fake_.tune_request().problems_size(), 0);
}

TEST_F(GemmctlTuneTest, ACalibrationAsJsonIsPartOfTheProgress) {
  fake_.tune = {Calibrated()};
  Gemmctl run(Args({"tune", "--calibrate", "--json"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_NE(run.output().find("\"calibrations\": [{\"ordinal\": 0, \"device\": \"NVIDIA H200\", "
                              "\"cp_async\": {\"latency_clocks\": 900, "),
            std::string::npos)
      << run.output();
  EXPECT_NE(run.output().find("\"calibrated\": 1}}"), std::string::npos) << run.output();
}

TEST_F(GemmctlTuneTest, ACalibrationThatIsRefusedHasNoSummary) {
  fake_.tune = {v1::TuneProgress()};
  fake_.ends_with = {grpc::StatusCode::UNIMPLEMENTED, "no model"};
  Gemmctl run(Args({"tune", "--calibrate"}));
  EXPECT_EQ(run.ExitCode(), 3);
  EXPECT_EQ(run.output(), "gemmctl: UNIMPLEMENTED: no model\n");
}

TEST_F(GemmctlTuneTest, CtrlCAfterACalibrationSaysThatItIsKept) {
  fake_.tune = {Calibrated()};
  fake_.hold = true;
  Gemmctl run(Args({"tune", "--calibrate"}));
  run.ReadUntil("TMA: ");
  run.Signal(SIGINT);
  EXPECT_EQ(run.ExitCode(), 128 + SIGINT) << run.output();
  EXPECT_NE(run.output().find("interrupted; the calibration is in use"), std::string::npos)
      << run.output();
}

TEST_F(GemmctlTuneTest, CtrlCCancelsATuneAndSaysWhatIsKept) {
  fake_.tune = {Progress(1, 3, Shape(64, 64, 64), PlanOf("new", 4, 1000))};
  fake_.hold = true;
  Gemmctl run(Args({"tune", "--served"}));
  run.ReadUntil("[1/3]");
  run.Signal(SIGINT);
  EXPECT_EQ(run.ExitCode(), 128 + SIGINT) << run.output();
  EXPECT_NE(run.output().find("tuned 1 of 3 shapes"), std::string::npos) << run.output();
  EXPECT_NE(run.output().find(
                "CANCELLED: interrupted; 1 of 3 shapes are done; the server has no tuning file: "
                "what was measured lasts until it ends"),
            std::string::npos)
      << run.output();
  server_.WaitUntilIdle();
  EXPECT_EQ(fake_.cancelled(), 1);
}

TEST_F(GemmctlTuneTest, CtrlCLeavesTheRestToAServerThatSaves) {
  fake_.tune = {Progress(2, 3, Shape(64, 64, 64), PlanOf("new", 4, 1000))};
  fake_.tune[0].set_tuning_file(true);
  fake_.tune[0].set_saved(1);
  fake_.hold = true;
  Gemmctl run(Args({"tune", "--served"}));
  run.ReadUntil("[2/3]");
  run.Signal(SIGINT);
  EXPECT_EQ(run.ExitCode(), 128 + SIGINT) << run.output();
  EXPECT_NE(run.output().find(
                "2 of 3 shapes are done; the server saves what was measured in its tuning file"),
            std::string::npos)
      << run.output();
}

TEST_F(GemmctlTuneTest, ATuneThatTheServerEndsSaysWhatIsKept) {
  fake_.tune = {Progress(1, 3, Shape(64, 64, 64), PlanOf("new", 4, 1000))};
  fake_.tune[0].set_tuning_file(true);
  fake_.tune[0].set_saved(1);
  fake_.ends_with = {grpc::StatusCode::UNAVAILABLE, "draining"};
  Gemmctl run(Args({"tune", "--served"}));
  EXPECT_EQ(run.ExitCode(), 3) << run.output();
  EXPECT_NE(run.output().find("UNAVAILABLE: draining"), std::string::npos) << run.output();
  EXPECT_NE(
      run.output().find("1 of 3 shapes are done; the server's tuning file has at least 1 of them"),
      std::string::npos)
      << run.output();
}

TEST_F(GemmctlTuneTest, ASecondTunersRefusalIsAFailedCall) {
  fake_.ends_with = {grpc::StatusCode::RESOURCE_EXHAUSTED, "another call tunes"};
  Gemmctl run(Args({"tune", "--served"}));
  EXPECT_EQ(run.ExitCode(), 3) << run.output();
  EXPECT_EQ(run.output(), "gemmctl: RESOURCE_EXHAUSTED: another call tunes\n");
}

TEST_F(GemmctlTuneTest, BadListsAreRefusedBeforeTheCall) {
  const std::string no_shapes = "no shapes: give --shape, --shapes, --m with --n and --k";
  ExpectRefused({"tune"}, no_shapes + ", --served, or --calibrate");
  ExpectRefused({"study"}, "no shapes: give --shape, --shapes, or --m with --n and --k");
  ExpectRefused({"tune", "--shape", "64x64"}, "--shape=64x64 is not MxNxK");
  ExpectRefused({"tune", "--shape", "64x64x0"}, "--shape=64x64x0: 0 is not a whole number from 1");
  ExpectRefused({"tune", "--m", "1:2", "--n", "1", "--k", "1"}, "--m=1:2 is not START:END:+STEP");
  ExpectRefused({"tune", "--m", "1", "--k", "1"}, "--m, --n and --k go together; --n is missing");
  ExpectRefused({"tune", "--m", "1:101:+1", "--n", "1:100:+1", "--k", "1"},
                "10100 shapes exceed the limit of 10000");
  ExpectRefused({"tune", "--dtype", "bf17", "--shape", "1x1x1"}, "--dtype: bf17 is not one of");
  ExpectRefused({"tune", "--served", "--budget", "1d"}, "--budget: 1d is not a time such as");
  ExpectRefused({"tune", "--shapes", Path("none")}, "cannot open " + Path("none"));
  std::ofstream(Path("s.csv")) << "a,bf16,NN,1,1,1\nb,bf16,NN,1,1\n";
  ExpectRefused({"study", "--shapes", Path("s.csv")}, Path("s.csv") + ":2: 5 cells, not the 6");
  ExpectRefused({"study", "--shape", "1x1x1", "--max-stages", "-1"}, "--max-stages: -1 is not");
}

TEST_F(GemmctlTuneTest, AStudyIsPrintedAndWritten) {
  fake_.study = {Point(Shape(64, 64, 64), 1, 2000), Point(Shape(64, 64, 64), 2, 1000),
                 Point(Shape(64, 64, 128), 1, 3000), Point(Shape(64, 64, 128), 2, 2000)};
  Gemmctl run(Args({"study", "--m", "64", "--n", "64", "--k", "64,128", "--kernel", "wgmma",
                    "--max-stages", "2", "--csv", Path("s.csv"), "--svg", Path("s.svg")}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_NE(run.output().find("single buffer / best ring = 2.00"), std::string::npos)
      << run.output();
  EXPECT_NE(run.output().find("single buffer / best ring = 1.50"), std::string::npos);
  EXPECT_NE(run.output().find("FEWEST S WITHIN 2 %"), std::string::npos);
  EXPECT_EQ(fake_.study_request().kernel(), "wgmma");
  EXPECT_EQ(fake_.study_request().max_stages(), 2);
  EXPECT_EQ(ReadFile(Path("s.csv")).rfind("name,dtype,layout,m,n,k,batch,kernel,stages", 0), 0U);
  EXPECT_NE(ReadFile(Path("s.svg")).find("K = 128"), std::string::npos);
}

TEST_F(GemmctlTuneTest, AStudyAsJsonIsOneObject) {
  fake_.study = {Point(Shape(64, 64, 64), 1, 2000)};
  Gemmctl run(Args({"study", "--shape", "64x64x64", "--json"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(run.output().rfind("{\"shapes\": [{", 0), 0U) << run.output();
  EXPECT_EQ(run.output().find('\n'), run.output().size() - 1) << run.output();
}

TEST_F(GemmctlTuneTest, PathsAreTriedBeforeAnythingIsMeasured) {
  ExpectRefused({"study", "--shape", "1x1x1", "--csv", Path("no/s.csv")},
                "cannot write " + Path("no/s.csv") + ": No such file or directory");
  ExpectRefused({"study", "--shape", "1x1x1", "--svg", folder_}, "is not a regular file");
  ExpectRefused({"study", "--shape", "1x1x1", "--svg", Path("a"), "--csv", Path("a")},
                "is the file of --csv too");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(GemmctlTuneTest, AStudyThatEndsEarlyIsPrintedAndWritten) {
  std::ofstream(Path("s.csv")) << "old";
  fake_.study = {Point(Shape(64, 64, 64), 1, 2000)};
  fake_.ends_with = {grpc::StatusCode::UNAVAILABLE, "draining"};
  Gemmctl run(Args({"study", "--shape", "64x64x64", "--shape", "1x1x1", "--csv", Path("s.csv")}));
  EXPECT_EQ(run.ExitCode(), 3) << run.output();
  EXPECT_NE(run.output().find("1 measurement of 1 of 2 shapes written to " + Path("s.csv")),
            std::string::npos)
      << run.output();
  EXPECT_NE(run.output().find("bf16 NN 64x64x64, wgmma"), std::string::npos) << run.output();
  EXPECT_NE(run.output().find("draining"), std::string::npos) << run.output();
  EXPECT_NE(ReadFile(Path("s.csv")).find(",bf16,NN,64,64,64,"), std::string::npos);
}

TEST_F(GemmctlTuneTest, CtrlCWritesWhatAStudyHas) {
  fake_.study = {Point(Shape(64, 64, 64), 1, 2000), Point(Shape(64, 64, 64), 2, 1000)};
  fake_.hold = true;
  Gemmctl run(Args({"study", "--shape", "64x64x64", "--shape", "1x1x1", "--csv", Path("s.csv"),
                    "--svg", Path("s.svg")}),
              /*terminal=*/true);
  run.ReadUntil("2 measured");
  run.Signal(SIGINT);
  EXPECT_EQ(run.ExitCode(), 128 + SIGINT) << run.output();
  EXPECT_NE(run.output().find("interrupted; 2 measurements of 1 of 2 shapes written to " +
                              Path("s.csv") + " and " + Path("s.svg")),
            std::string::npos)
      << run.output();
  EXPECT_NE(ReadFile(Path("s.csv")).find(",64,64,64,"), std::string::npos);
  EXPECT_NE(ReadFile(Path("s.svg")).find("<svg"), std::string::npos);
}

TEST_F(GemmctlTuneTest, AStudyWithoutAMeasurementLeavesOldFiles) {
  std::ofstream(Path("s.csv")) << "old";
  fake_.ends_with = {grpc::StatusCode::UNAVAILABLE, "draining"};
  Gemmctl run(Args({"study", "--shape", "64x64x64", "--csv", Path("s.csv")}));
  EXPECT_EQ(run.ExitCode(), 3) << run.output();
  EXPECT_EQ(ReadFile(Path("s.csv")), "old");
}

TEST_F(GemmctlTuneTest, TextThatIsNotUtf8IsRefusedWithItsOption) {
  ExpectRefused({"study", "--shape", "1x1x1", "--kernel", "\xff"},
                "INVALID_ARGUMENT: --kernel: the text is not UTF-8");
  ExpectRefused({"matmul", "a", "b", "-o", "c", "--request-id", "\xc3("},
                "INVALID_ARGUMENT: --request-id: the text is not UTF-8");
  ExpectRefused({"plan", "1", "1", "1", "--kernel", "\xff"}, "--kernel: the text is not");
  ExpectRefused({"health", "--service", "\xff"}, "--service: the text is not");
}

TEST_F(GemmctlTuneTest, AStudysOutputsAreNotItsInput) {
  std::ofstream(Path("in.csv")) << "a,bf16,NN,1,1,1\n";
  std::filesystem::create_hard_link(Path("in.csv"), Path("same"));
  for (const char* option : {"--csv", "--svg"}) {
    ExpectRefused({"study", "--shapes", Path("in.csv"), option, Path("same")},
                  std::string(option) + "=" + Path("same") + " is the file of --shapes too");
  }
  EXPECT_EQ(ReadFile(Path("in.csv")), "a,bf16,NN,1,1,1\n");
}

TEST_F(GemmctlTuneTest, APlansTableFitsAHundredColumns) {
  fake_.explain = [](const v1::ExplainPlanRequest&, v1::ExplainPlanResponse* response) {
    v1::Plan plan = PlanOf("tma_pingpong_128x192x64", 10, 999900);
    plan.mutable_predicted()->set_nanos(999900);
    plan.set_limit(v1::STAGE_LIMIT_SHARED_MEMORY);
    plan.set_source(v1::PLAN_SOURCE_MEASURED);
    plan.set_pair(true);
    plan.set_registers(168);
    plan.set_waves(123.25);
    plan.set_resident_blocks(1);
    plan.set_smem_bytes(232448);
    *response->mutable_plan() = plan;
    *response->add_candidates() = plan;
    return grpc::Status::OK;
  };
  Gemmctl run(Args({"plan", "4096", "4096", "4096"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  std::istringstream lines(run.output());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  for (const char* cell : {"chosen by: measured", "pair", "168", "123.25", "shared_memory"}) {
    EXPECT_NE(run.output().find(cell), std::string::npos) << cell << ": " << run.output();
  }
}

}  // namespace
}  // namespace gemmd
