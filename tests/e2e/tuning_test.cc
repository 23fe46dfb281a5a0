// Tune and Study over the wire.
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "tests/e2e/tuning_fixture.h"

namespace gemmd::testing {
namespace {

using grpc::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(TuningTest, TunedProblemsHaveMeasuredPlans) {
  StartOnCpu();
  const v1::Problem first = MakeProblem(64, 48, 32), second = MakeProblem(33, 65, 17);
  EXPECT_FALSE(IsMeasured(first));
  TuneStream stream(Starting(Of<v1::TuneRequest>({first, second})));
  const grpc::Status status = stream.End();
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(stream.messages().size(), 3U);
  EXPECT_EQ(stream.messages()[0].done(), 0);
  EXPECT_FALSE(stream.messages()[0].has_problem());
  const v1::TuneProgress& last = stream.messages()[2];
  EXPECT_EQ(last.done(), 2);
  EXPECT_EQ(last.total(), 2);
  EXPECT_EQ(last.problem().m(), 33);
  EXPECT_EQ(last.problem().type_d(), v1::DATA_TYPE_F32);
  EXPECT_EQ(last.best().kernel(), "openblas");
  EXPECT_EQ(last.time_left().seconds() + last.time_left().nanos(), 0);
  EXPECT_TRUE(IsMeasured(first));
  EXPECT_TRUE(IsMeasured(second));
}

TEST_F(TuningTest, ServedProblemsAreTunedWhereAskedFor) {
  StartOnCpu();
  v1::TuneRequest request;
  request.set_served(true);
  const grpc::Status none = Tune(request);
  EXPECT_EQ(none.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(none.error_message(), HasSubstr("served"));
  ASSERT_TRUE(Gemm(OnesRequest(9, 8, 7)).ok());
  ASSERT_TRUE(Tune(request).ok());
  EXPECT_TRUE(IsMeasured(MakeProblem(9, 8, 7)));
}

TEST_F(TuningTest, CancelledTuneKeepsWhatWasMeasured) {
  StartOnManualH200();
  const v1::Problem first = MakeProblem(256, 256, 256), second = MakeProblem(512, 512, 512);
  manual_->HoldTimers(1);
  TuneStream stream(Starting(Of<v1::TuneRequest>({first, second})));
  manual_->WaitForTimers(2);
  stream.Cancel();
  EXPECT_EQ(stream.End().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(IsMeasured(first));
  EXPECT_FALSE(IsMeasured(second));
  // The place is free once the server has heard of it.
  manual_->ReleaseTimers();
  grpc::Status again;
  Until([&] { return (again = Tune(Of<v1::TuneRequest>({second}))).ok(); });
}

TEST_F(TuningTest, SecondTunerIsTurnedAwayAndTheFirstGoesOn) {
  StartOnManualH200();
  manual_->HoldTimers();
  const v1::Problem problem = MakeProblem(256, 256, 256);
  TuneStream first(Starting(Of<v1::TuneRequest>({problem})));
  manual_->WaitForTimers(1);
  const grpc::Status second = Tune(Of<v1::TuneRequest>({problem}));
  EXPECT_EQ(second.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(second.error_message(), HasSubstr("a tune of 1 problem is running"));
  EXPECT_EQ(Study(Of<v1::StudyRequest>({problem})).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  manual_->ReleaseTimers();
  EXPECT_TRUE(first.End().ok());
}

TEST_F(TuningTest, DrainEndsATuneSoonAndKeepsWhatItMeasured) {
  StartOnManualH200();
  manual_->HoldTimers();
  TuneStream stream(Starting(Of<v1::TuneRequest>({MakeProblem(256, 256, 256)})));
  manual_->WaitForTimers(1);
  server_->StartDrain();
  const grpc::Status status = stream.End();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("draining"), HasSubstr("has no tuning file")));
  EXPECT_TRUE(server_->WaitIdle(SteadyClock::now() + kLongEnough));
  EXPECT_EQ(Tune(Of<v1::TuneRequest>({MakeProblem(8, 8, 8)})).error_code(),
            StatusCode::UNAVAILABLE);
}

// Nothing is measured yet, and a Study has no message without a measurement.
TEST_F(TuningTest, CallersHearAtOnceThatAStudyIsTaken) {
  StartOnManualH200();
  manual_->HoldTimers();
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto reader = info_->Study(&context, Of<v1::StudyRequest>({MakeProblem(256, 256, 256)}));
  reader->WaitForInitialMetadata();
  EXPECT_EQ(server_->tuning(), "a study of 1 problem");
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(TuningTest, CutConnectionEndsATune) {
  StartOnManualH200();
  manual_->HoldTimers();
  TuneStream stream(Starting(Of<v1::TuneRequest>({MakeProblem(256, 256, 256)})));
  manual_->WaitForTimers(1);
  server_->Shutdown();  // returns when the call has ended
  EXPECT_FALSE(stream.End().ok());
}

TEST_F(TuningTest, BadRequestsAreRefusedWithTheirField) {
  StartOnManualH200();
  const v1::Problem good = MakeProblem(8, 8, 8);
  const auto expect = [&](const grpc::Status& status, StatusCode code, const std::string& field,
                          const std::string& part) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_EQ(FieldOf(status), field);
    EXPECT_THAT(status.error_message(), HasSubstr(part));
  };
  expect(Tune({}), StatusCode::INVALID_ARGUMENT, "problems", "at least 1");
  expect(Tune(Of<v1::TuneRequest>(std::vector<v1::Problem>(10'001, good))),
         StatusCode::INVALID_ARGUMENT, "problems", "the limit is 10000");
  expect(Tune(Of<v1::TuneRequest>({good, MakeProblem(-1, 8, 8)})), StatusCode::INVALID_ARGUMENT,
         "problems[1].m", "problems[1].m=-1");
  expect(Tune(Of<v1::TuneRequest>({good, MakeProblem(8, 0, 8)})), StatusCode::INVALID_ARGUMENT,
         "problems[1]", "problems[1]");
  expect(Tune(Of<v1::TuneRequest>({good, MakeProblem(8, 8, 8, v1::DATA_TYPE_F8_E4M3)})),
         StatusCode::UNIMPLEMENTED, "problems[1].type_a", "e4m3");
  expect(Tune(Of<v1::TuneRequest>({good, MakeProblem(1 << 20, 1 << 20, 8)})),
         StatusCode::RESOURCE_EXHAUSTED, "problems[1]",
         "4398046511104 bytes, there are 1073741824");

  for (const int64_t seconds : {int64_t{0}, int64_t{-1}, int64_t{1} << 50, -(int64_t{1} << 62)}) {
    v1::TuneRequest budget = Of<v1::TuneRequest>({good});
    budget.mutable_budget()->set_seconds(seconds);
    expect(Tune(budget), StatusCode::INVALID_ARGUMENT, "budget", "budget=");
  }

  v1::StudyRequest study = Of<v1::StudyRequest>({good});
  study.set_kernel("no_such_kernel");
  expect(Study(study), StatusCode::INVALID_ARGUMENT, "kernel", "kernel=\"no_such_kernel\"");
  study.set_kernel("tma_wgmma_128x256x64");
  expect(Study(study), StatusCode::INVALID_ARGUMENT, "kernel", "does not take f32");
  study = Of<v1::StudyRequest>({good});
  study.set_max_stages(-1);
  expect(Study(study), StatusCode::INVALID_ARGUMENT, "max_stages", "max_stages=-1");
  expect(Study({}), StatusCode::INVALID_ARGUMENT, "problems", "at least 1");
  EXPECT_TRUE(manual_->timed().empty());
}

TEST_F(TuningTest, ACpuRefusesAtOnceToTimeWhatWouldFillItsMemory) {
  StartOnCpu();
  const std::vector<v1::Problem> problems = {MakeProblem(8, 8, 8),
                                             MakeProblem(30000, 30000, 30000)};
  for (const grpc::Status& status :
       {Tune(Of<v1::TuneRequest>(problems)), Study(Of<v1::StudyRequest>(problems))}) {
    EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_EQ(FieldOf(status), "problems[1]");
    EXPECT_THAT(status.error_message(), HasSubstr("10800000000 bytes"));
  }
  EXPECT_FALSE(IsMeasured(problems[0]));
}

TEST_F(TuningTest, ACpuHasNoModelToCalibrate) {
  StartOnCpu();
  const grpc::Status status = Tune(Calibrating());
  EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED) << status.error_message();
  EXPECT_EQ(FieldOf(status), "calibrate");
  EXPECT_THAT(status.error_message(), HasSubstr("no model of a CPU"));
}

TEST_F(TuningTest, CalibrationWithoutProblemsIsToldAndInUse) {
  StartOnManualH200();
  Calibration slow = kH200Calibration;
  slow.tma->flops_per_clock /= 10;
  manual_->SetCalibration(slow);
  const v1::Problem problem = MakeProblem(4096, 4096, 4096, v1::DATA_TYPE_BF16);
  const v1::Plan before = Explain(problem);
  TuneStream stream(Starting(Calibrating()));
  const grpc::Status status = stream.End();
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(stream.messages().size(), 2U);
  EXPECT_EQ(stream.messages()[0].calibrations_size(), 0);
  ASSERT_EQ(stream.messages()[1].calibrations_size(), 1);
  EXPECT_EQ(stream.messages()[1].calibrations(0).device(), "NVIDIA H200");
  EXPECT_NE(Explain(problem).kernel(), before.kernel());
}

TEST_F(TuningTest, CancelledCalibrationEndsAndFreesTheTuner) {
  StartOnManualH200();
  manual_->HoldCalibrations();
  TuneStream stream(Starting(Calibrating()));
  manual_->WaitForCalibrations(1);
  EXPECT_EQ(Tune(Calibrating()).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  stream.Cancel();
  EXPECT_EQ(stream.End().error_code(), StatusCode::CANCELLED);
}

TEST_F(TuningTest, StudyOnTheCpuHasOnePoint) {
  StartOnCpu();
  StudyStream stream(Starting(Of<v1::StudyRequest>({MakeProblem(64, 64, 64)})));
  const grpc::Status status = stream.End();
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(stream.messages().size(), 1U);
  const v1::StudyPoint& point = stream.messages().front();
  EXPECT_EQ(point.problem().m(), 64);
  EXPECT_EQ(point.plan().kernel(), "openblas");
  EXPECT_EQ(point.plan().stages(), 0);
  EXPECT_GT(point.median().nanos(), 0);
  EXPECT_FALSE(point.has_stalls());
}

TEST_F(TuningTest, StudyHasAPointForEveryStageCount) {
  StartOnManualH200();
  manual_->SetPlanSeconds([](const Plan& plan) { return 1e-3 / plan.stages; });
  v1::StudyRequest request =
      Of<v1::StudyRequest>({MakeProblem(4096, 4096, 64, v1::DATA_TYPE_BF16),
                            MakeProblem(4096, 4096, 4096, v1::DATA_TYPE_BF16)});
  request.set_kernel("tma_wgmma_128x256x64");
  StudyStream stream(Starting(request));
  ASSERT_TRUE(stream.End().ok());
  int64_t k = 0;
  int stages = 0;
  for (const v1::StudyPoint& point : stream.messages()) {
    stages = point.problem().k() == k ? stages + 1 : 1;
    k = point.problem().k();
    EXPECT_EQ(point.plan().stages(), stages);
    EXPECT_EQ(point.plan().split_k(), 1);
    EXPECT_TRUE(point.plan().has_predicted());
    EXPECT_GT(point.plan().smem_bytes(), 0);
    EXPECT_NEAR(point.median().nanos(), 1e6 / stages, 1);
    EXPECT_NEAR(point.spread().nanos(), 0.2e6 / stages, 2);
  }
  EXPECT_EQ(k, 4096);
  EXPECT_EQ(stages, 4);
}

// Messages of some 80 bytes.
constexpr int kMoreThanAConnectionCarries = 5000;

TEST_F(TuningTest, SlowReaderMissesStepsOfATuneButNotItsEnd) {
  StartOnManualH200();
  NarrowConnection();
  const std::vector<v1::Problem> problems(kMoreThanAConnectionCarries, MakeProblem(64, 64, 64));
  TuneStream unread(Starting(Of<v1::TuneRequest>(problems)));
  manual_->WaitForTimers(kMoreThanAConnectionCarries);
  // The next may run, though nobody reads what the first had to say.
  grpc::Status next;
  Until([&] { return (next = Tune(Of<v1::TuneRequest>({problems[0]}))).ok(); });
  EXPECT_TRUE(unread.End().ok());
  EXPECT_LT(unread.messages().size(), problems.size());
  EXPECT_EQ(unread.messages().back().done(), kMoreThanAConnectionCarries);
}

TEST_F(TuningTest, SlowReaderOfAStudyHoldsItUpAndLosesNothing) {
  StartOnManualH200();
  NarrowConnection();
  const std::vector<v1::Problem> problems(kMoreThanAConnectionCarries,
                                          MakeProblem(1, 64, 64, v1::DATA_TYPE_BF16));
  StudyStream unread(Starting(Of<v1::StudyRequest>(problems)));
  manual_->WaitForTimers(100);
  EXPECT_EQ(Tune(Of<v1::TuneRequest>({problems[0]})).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_LT(manual_->timed().size(), problems.size());
  ASSERT_TRUE(unread.End().ok());
  EXPECT_GE(unread.messages().size(), problems.size());
}

TEST_F(TuningTest, ReaderOfAStudyWhoNeverReadsCanBeCutOff) {
  StartOnManualH200();
  NarrowConnection();
  const std::vector<v1::Problem> problems(kMoreThanAConnectionCarries, MakeProblem(64, 64, 64));
  {
    StudyStream unread(Starting(Of<v1::StudyRequest>(problems)));
    manual_->WaitForTimers(100);
  }  // cancelled
  grpc::Status next;
  Until([&] { return (next = Tune(Of<v1::TuneRequest>({problems[0]}))).ok(); });
  EXPECT_LT(manual_->timed().size(), problems.size());
}

TEST_F(TuningTest, ReaderOfAStudyWhoNeverReadsIsGivenUp) {
  config_.reader_timeout = std::chrono::milliseconds(50);
  StartOnManualH200();
  NarrowConnection();
  const std::vector<v1::Problem> problems(kMoreThanAConnectionCarries, MakeProblem(64, 64, 64));
  StudyStream unread(Starting(Of<v1::StudyRequest>(problems)));
  manual_->WaitForTimers(1);  // it has begun; how far it gets is the connection's to say
  grpc::Status next;
  Until([&] { return (next = Tune(Of<v1::TuneRequest>({problems[0]}))).ok(); });
  EXPECT_LT(manual_->timed().size(), problems.size());
  EXPECT_EQ(unread.End().error_code(), StatusCode::CANCELLED);
}

TEST_F(TuningTest, ProductsAreServedWhileATuneRuns) {
  StartOnManualH200();
  manual_->HoldTimers();
  TuneStream stream(Starting(Of<v1::TuneRequest>({MakeProblem(256, 256, 256)})));
  manual_->WaitForTimers(1);
  manual_->CompleteAll();
  EXPECT_TRUE(Gemm(OnesRequest(4, 4, 4)).ok());
  manual_->ReleaseTimers();
  EXPECT_TRUE(stream.End().ok());
}

TEST_F(TuningTest, BackgroundTuningMeasuresWhatWasServed) {
  config_.background_tuning = true;
  config_.background_share_percent = 100;
  StartOnCpu();
  ASSERT_TRUE(Gemm(OnesRequest(31, 30, 29)).ok());
  Until([this] { return IsMeasured(MakeProblem(31, 30, 29)); });
}

}  // namespace
}  // namespace gemmd::testing
