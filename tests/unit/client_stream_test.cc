// GemmClient's calls with streams, against a service that says what a test wants.
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "client/gemm_client.h"
#include "client/wire.h"
#include "proto/convert.h"
#include "tests/support/fake_tuner.h"

namespace gemmd {
namespace {

GemmProblem RowsProblem(int64_t m) {
  GemmProblem problem;
  problem.m = m;
  problem.n = 64;
  problem.k = 32;
  problem.op_b = Op::kT;
  problem.type_a = problem.type_b = problem.type_d = DType::kBF16;
  return WithPackedLayouts(problem);
}

class ClientStreamTest : public ::testing::Test {
 protected:
  ClientStreamTest() : server_("client_stream_test") {
    client_ = *GemmClient::Create({.target = server_.target()});
  }

  Status Tune(const ClientTuneRequest& request, const std::stop_token& stop = {},
              Milliseconds timeout = std::chrono::seconds(60)) {
    CallOptions options;
    options.timeout = timeout;
    const auto keep = [this](const ClientTuneProgress& progress) {
      progress_.push_back(progress);
      if (on_progress_) on_progress_();
    };
    return client_->Tune(request, keep, stop, options);
  }
  Status Study(const ClientStudyRequest& request) {
    return client_->Study(request, [this](const ClientStudyPoint& p) { points_.push_back(p); });
  }

  FakeTunerServer server_;
  FakeTuner& fake_ = server_.tuner();
  std::unique_ptr<GemmClient> client_;
  std::vector<ClientTuneProgress> progress_;
  std::vector<ClientStudyPoint> points_;
  std::function<void()> on_progress_;
};

TEST_F(ClientStreamTest, ATuneSendsItsProblemsAndHandsOnItsProgress) {
  v1::TuneProgress progress;
  progress.set_done(1);
  progress.set_total(2);
  *progress.mutable_problem() = ToProto(RowsProblem(16));
  progress.mutable_best()->set_kernel("wgmma");
  progress.mutable_best()->mutable_measured()->set_nanos(1500);
  progress.mutable_time_left()->set_seconds(3);
  progress.add_calibrations()->mutable_calibration()->mutable_cp_async()->set_bytes_per_clock(60);
  fake_.tune = {v1::TuneProgress(), progress};
  const ClientTuneRequest request{.problems = {RowsProblem(16), RowsProblem(32)},
                                  .served = true,
                                  .budget_seconds = 1.5,
                                  .calibrate = true};
  const Status status = Tune(request);
  ASSERT_TRUE(status.ok()) << status.ToString();

  const v1::TuneRequest sent = fake_.tune_request();
  ASSERT_EQ(sent.problems_size(), 2);
  EXPECT_EQ(sent.problems(1).m(), 32);
  EXPECT_EQ(sent.problems(1).trans_b(), v1::TRANSPOSE_TRANS);
  EXPECT_TRUE(sent.served());
  EXPECT_TRUE(sent.calibrate());
  EXPECT_EQ(sent.budget().seconds(), 1);
  EXPECT_EQ(sent.budget().nanos(), 500000000);

  ASSERT_EQ(progress_.size(), 2U);
  EXPECT_FALSE(progress_[0].problem || progress_[0].best || progress_[0].left_seconds);
  EXPECT_EQ(progress_[1].done, 1);
  EXPECT_EQ(progress_[1].total, 2);
  ASSERT_TRUE(progress_[1].problem);
  EXPECT_EQ(ToString(*progress_[1].problem), ToString(RowsProblem(16)));
  EXPECT_EQ(progress_[1].problem->a, RowsProblem(16).a);
  ASSERT_TRUE(progress_[1].best);
  EXPECT_EQ(progress_[1].best->measured_seconds, 1.5e-6);
  EXPECT_EQ(progress_[1].left_seconds, 3);
  ASSERT_EQ(progress_[1].calibrations.size(), 1U);
  EXPECT_EQ(progress_[1].calibrations[0].calibration.cp_async.bytes_per_clock, 60);
  EXPECT_FALSE(progress_[1].calibrations[0].calibration.tma);
}

TEST_F(ClientStreamTest, ACalibrationNeedsNoProblems) {
  ASSERT_TRUE(Tune({.calibrate = true}).ok());
  EXPECT_TRUE(fake_.tune_request().calibrate());
}

TEST_F(ClientStreamTest, NoBudgetIsLeftUnset) {
  ASSERT_TRUE(Tune({.problems = {RowsProblem(16)}}).ok());
  EXPECT_FALSE(fake_.tune_request().has_budget());
}

TEST_F(ClientStreamTest, ATuneThatIsStoppedEndsCancelledAtBothEnds) {
  fake_.tune = {v1::TuneProgress()};
  fake_.hold = true;
  std::stop_source stop;
  on_progress_ = [&] { stop.request_stop(); };
  const Status status = Tune({.problems = {RowsProblem(16)}}, stop.get_token());
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(progress_.size(), 1U);
  server_.WaitUntilIdle();
  EXPECT_EQ(fake_.cancelled(), 1);
}

TEST_F(ClientStreamTest, AStopBeforeTheCallCancelsIt) {
  fake_.hold = true;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(Tune({.problems = {RowsProblem(16)}}, stop.get_token()).code(), StatusCode::kCancelled);
}

TEST_F(ClientStreamTest, AServerThatDoesNotTakeUpTheCallIsGivenUp) {
  fake_.hold = true;
  const Status status = Tune({.problems = {RowsProblem(16)}}, {}, Milliseconds(50));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "no answer within 50 ms");
}

// Headers are the answer: a message may take any time where the server shows that it lives.
TEST_F(ClientStreamTest, AServerThatAnswersHealthChecksIsWaitedFor) {
  fake_.headers = true;
  fake_.hold = true;
  std::stop_source stop;
  fake_.on_headers = [&] {
    while (server_.health().checks() < 5) std::this_thread::yield();  // the timeout twice over
    stop.request_stop();
  };
  EXPECT_EQ(Tune({.problems = {RowsProblem(16)}}, stop.get_token(), Milliseconds(500)).code(),
            StatusCode::kCancelled);
}

TEST_F(ClientStreamTest, AServerThatFallsSilentIsGivenUp) {
  server_.health().mute = true;
  fake_.tune = {v1::TuneProgress()};
  fake_.study = {v1::StudyPoint()};
  *fake_.study[0].mutable_problem() = ToProto(RowsProblem(16));
  fake_.headers = true;
  fake_.hold = true;
  const CallOptions options{.timeout = Milliseconds(200)};
  const std::string why =
      "the server fell silent: no message and no answer to a health check within 200 ms";
  Status status = Tune({.problems = {RowsProblem(16)}}, {}, options.timeout);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), why);
  EXPECT_EQ(progress_.size(), 1U);
  status = client_->Study(
      {.problems = {RowsProblem(16)}}, [](const ClientStudyPoint&) {}, {}, options);
  EXPECT_EQ(status.message(), why);
  status = client_->WatchHealth(
      "", [](Serving) { return true; }, options);
  EXPECT_EQ(status.message(), why);
}

TEST_F(ClientStreamTest, ATunesStatusIsTheServersAndItIsNotTriedAgain) {
  fake_.ends_with = {grpc::StatusCode::UNAVAILABLE, "draining"};
  const Status status = Tune({.problems = {RowsProblem(16)}});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "draining");
  EXPECT_EQ(fake_.calls(), 1);
}

TEST_F(ClientStreamTest, BadTunesNeverReachTheServer) {
  EXPECT_EQ(Tune({}).field(), "problems");
  GemmProblem endless = RowsProblem(16);
  endless.alpha = std::numeric_limits<double>::infinity();
  const Status status = Tune({.problems = {RowsProblem(16), endless}});
  EXPECT_EQ(status.field(), "problem.alpha");
  EXPECT_EQ(status.message().rfind("problems[1]: ", 0), 0U) << status.message();
  for (const double seconds : {-1.0, 1e10, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(Tune({.served = true, .budget_seconds = seconds}).field(), "budget");
  }
  EXPECT_EQ(Study({}).field(), "problems");
  EXPECT_EQ(Study({.problems = {endless}}).field(), "problem.alpha");
  EXPECT_EQ(Study({.problems = {RowsProblem(16)}, .max_stages = -1}).field(), "max_stages");
  EXPECT_EQ(fake_.calls(), 0);
}

TEST_F(ClientStreamTest, TextThatIsNotUtf8NeverReachesTheServer) {
  const auto refused = [](const Status& status, const std::string& field) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_EQ(status.field(), field);
  };
  std::vector<std::byte> d(size_t{16} * 64 * 2);
  const HostOperands operands{.a = d.data(), .b = d.data(), .d = d.data()};
  refused(client_->Gemm(RowsProblem(16), operands, {.kernel = "\xff"}).status(), "kernel");
  refused(client_->Gemm(RowsProblem(16), operands, {.request_id = "\xc0\x80"}).status(),
          "request_id");
  refused(client_->Plan(RowsProblem(16), {.kernel = "\xed\xa0\x80"}).status(), "kernel");
  refused(Study({.problems = {RowsProblem(16)}, .kernel = "\xc3("}), "kernel");
  refused(client_->Health("\x80").status(), "service");
  refused(client_->WatchHealth("\x80", [](Serving) { return true; }), "service");
  EXPECT_EQ(fake_.calls(), 0);
}

TEST_F(ClientStreamTest, AStudySendsItsProblemsAndHandsOnItsPoints) {
  v1::StudyPoint point;
  *point.mutable_problem() = ToProto(RowsProblem(16));
  point.mutable_plan()->set_stages(3);
  point.mutable_median()->set_nanos(2000);
  point.mutable_spread()->set_nanos(500);
  fake_.study = {point};
  point.mutable_stalls()->set_wait_full(7);
  fake_.study.push_back(point);
  const Status status = Study({.problems = {RowsProblem(16)}, .kernel = "wgmma", .max_stages = 4});
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(fake_.study_request().kernel(), "wgmma");
  EXPECT_EQ(fake_.study_request().max_stages(), 4);
  ASSERT_EQ(points_.size(), 2U);
  EXPECT_EQ(points_[0].plan.stages, 3);
  EXPECT_EQ(points_[0].median_seconds, 2e-6);
  EXPECT_EQ(points_[0].spread_seconds, 5e-7);
  EXPECT_FALSE(points_[0].stalls.measured);
  EXPECT_EQ(points_[1].stalls.wait_full, 7U);
}

TEST_F(ClientStreamTest, APointOfAnUnreadableProblemIsAnError) {
  v1::StudyPoint point;
  *point.mutable_problem() = ToProto(RowsProblem(16));
  point.mutable_problem()->set_m(int64_t{1} << 40);
  fake_.study = {point};
  EXPECT_EQ(Study({.problems = {RowsProblem(16)}}).code(), StatusCode::kInternal);
  EXPECT_TRUE(points_.empty());
}

TEST(WireProblemTest, ProblemsComeBackAsTheyWereSent) {
  GemmProblem problem = RowsProblem(16);
  problem.batch = 3;
  problem.op_a = Op::kT;
  problem.type_a = problem.type_b = problem.type_d = DType::kF32;
  problem.mode = ComputeMode::kTf32x3;
  problem = WithPackedLayouts(problem);
  v1::Problem message = ToProto(problem);
  const std::optional<GemmProblem> back = wire::FromProto(message);
  ASSERT_TRUE(back);
  EXPECT_EQ(ToString(*back), ToString(problem));
  EXPECT_EQ(back->mode, problem.mode);
  EXPECT_EQ(back->type_d, problem.type_d);
  EXPECT_EQ(back->b, problem.b);
  message.set_trans_a(static_cast<v1::Transpose>(99));
  EXPECT_FALSE(wire::FromProto(message));
  message = ToProto(problem);
  message.set_type_a(static_cast<v1::DataType>(99));
  EXPECT_FALSE(wire::FromProto(message));
}

}  // namespace
}  // namespace gemmd
