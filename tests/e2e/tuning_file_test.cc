// A server's tuning file, from start to end.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "tests/e2e/tuning_fixture.h"

namespace gemmd::testing {
namespace {

using grpc::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TuningFileTest : public TuningTest {
 protected:
  TuningFileTest() {
    std::string folder = ::testing::TempDir() + "tuning_test.XXXXXX";
    folder_ = mkdtemp(folder.data());
    config_.tuning_file = folder_ + "/tuning.json";
  }
  ~TuningFileTest() override { std::filesystem::remove_all(folder_); }

  void Stop() {
    TearDown();
    server_ = nullptr;
    manual_ = nullptr;
  }
  void Write(const std::string& text) const { std::ofstream(config_.tuning_file) << text; }

  std::string folder_;
};

TEST_F(TuningFileTest, WhatWasTunedIsKnownAfterARestart) {
  const v1::Problem problem = MakeProblem(64, 48, 32);
  StartOnCpu();
  EXPECT_THAT(log_text_.str(), HasSubstr("is not there yet"));
  ASSERT_TRUE(Tune(Of<v1::TuneRequest>({problem})).ok());
  const v1::Plan before = Explain(problem);
  Stop();
  StartOnCpu();
  const v1::Plan after = Explain(problem);
  EXPECT_EQ(after.source(), v1::PLAN_SOURCE_MEASURED);
  EXPECT_EQ(after.measured().nanos(), before.measured().nanos());
  EXPECT_FALSE(IsMeasured(MakeProblem(640, 48, 32)));
  EXPECT_THAT(log_text_.str(), HasSubstr(config_.tuning_file + ": 1 problem\n"));
}

TEST_F(TuningFileTest, ACalibrationIsKnownAfterARestartUnlessItCannotBe) {
  StartOnManualH200();
  Calibration slow = kH200Calibration;
  slow.tma->flops_per_clock = 400;
  manual_->SetCalibration(slow);
  const v1::Problem problem = MakeProblem(4096, 4096, 4096, v1::DATA_TYPE_BF16);
  const v1::Plan before = Explain(problem);
  ASSERT_TRUE(Tune(Calibrating()).ok());
  const v1::Plan calibrated = Explain(problem);
  EXPECT_NE(calibrated.kernel(), before.kernel());
  Stop();
  StartOnManualH200();
  EXPECT_EQ(Explain(problem).kernel(), calibrated.kernel());
  EXPECT_THAT(log_text_.str(), HasSubstr("the calibration of 1 device\n"));
  Stop();
  std::ostringstream text;
  text << std::ifstream(config_.tuning_file).rdbuf();
  std::string damaged = text.str();
  const std::string figure = "\"flops_per_clock\": 400";
  ASSERT_NE(damaged.find(figure), std::string::npos) << damaged;
  damaged.replace(damaged.find(figure), figure.size(), "\"flops_per_clock\": -4");
  Write(damaged);
  StartOnManualH200();
  EXPECT_EQ(Explain(problem).kernel(), before.kernel());
  EXPECT_THAT(log_text_.str(), AllOf(HasSubstr("[warning]"), HasSubstr("tma.flops_per_clock=-4")));
}

TEST_F(TuningFileTest, EveryKindOfDeviceKeepsItsCalibration) {
  DeviceTraits small = H200Traits();
  small.name = "NVIDIA H200 NVL", small.ordinal = 1, small.sm_count = 100;
  const auto start = [&] {
    StartOnManuals({{.memory_bytes = 1 << 30, .traits = H200Traits()},
                    {.memory_bytes = 1 << 30, .traits = small}});
  };
  start();
  ASSERT_TRUE(Tune(Calibrating()).ok());
  Stop();
  start();
  EXPECT_THAT(log_text_.str(), HasSubstr("the calibration of 2 devices\n"));
}

TEST_F(TuningFileTest, AFileThatDoesNotHoldGivesOneWarningAndTheModelPlans) {
  const v1::Problem problem = MakeProblem(256, 256, 256);
  StartOnManualH200();
  ASSERT_TRUE(Tune(Of<v1::TuneRequest>({problem})).ok());
  Stop();
  const auto warnings = [this] {
    const std::string log = log_text_.str();
    size_t count = 0;
    for (size_t at = 0; (at = log.find("[warning]", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(warnings(), 0U);
  DeviceTraits other = H200Traits();
  other.driver_version = 99;
  StartOnManual({.memory_bytes = 1 << 30, .traits = other});
  EXPECT_FALSE(IsMeasured(problem));
  EXPECT_EQ(warnings(), 1U);
  EXPECT_THAT(log_text_.str(), HasSubstr("driver_version=13000, where this server has 99"));
  ASSERT_TRUE(Tune(Of<v1::TuneRequest>({problem})).ok());
  EXPECT_TRUE(std::filesystem::exists(config_.tuning_file + ".old"));
  Stop();
  Write("{ cut short");
  StartOnManualH200();
  EXPECT_FALSE(IsMeasured(problem));
  EXPECT_EQ(warnings(), 2U);
  EXPECT_THAT(log_text_.str(), HasSubstr("is damaged"));
}

TEST_F(TuningFileTest, APathThatCannotBeWrittenIsToldAndWhatWasMeasuredIsInUse) {
  config_.tuning_file = folder_ + "/no/such/folder.json";
  StartOnCpu();
  const v1::Problem problem = MakeProblem(64, 48, 32);
  const grpc::Status status = Tune(Of<v1::TuneRequest>({problem, MakeProblem(9, 9, 9)}));
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr(config_.tuning_file));
  EXPECT_TRUE(IsMeasured(problem));
}

TEST_F(TuningFileTest, BackgroundTuningThatCannotSaveIsLoggedOnceAndAtTheEnd) {
  config_.tuning_file = folder_ + "/no/such/folder.json";
  config_.background_tuning = true;
  config_.background_share_percent = 100;
  StartOnCpu();
  const std::string warning =
      "what was measured is in use and not saved: tuning-file=" + config_.tuning_file +
      ": cannot write";
  for (const int64_t n : {30, 31}) {
    ASSERT_TRUE(Gemm(OnesRequest(n, n, n)).ok());
    Until([&] { return IsMeasured(MakeProblem(n, n, n)); });
  }
  Stop();
  const std::string log = log_text_.str();
  const size_t first = log.find(warning);
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(warning, first + 1), std::string::npos) << log;
  EXPECT_THAT(log, HasSubstr("since the last save is lost: tuning-file=" + config_.tuning_file));
}

}  // namespace
}  // namespace gemmd::testing
