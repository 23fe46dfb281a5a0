// The tuner's studies.
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/problems.h"
#include "tests/unit/tuner_fixture.h"

namespace gemmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StudyTest : public TunerTest {
 protected:
  std::future<Status> Study(std::vector<GemmProblem> problems, std::optional<int> row,
                            int max_stages = 0) {
    StudyRun run;
    run.problems = std::move(problems);
    run.row = row;
    run.max_stages = max_stages;
    run.point = [this](const StudyStep& step) { points_.push_back(step); };
    std::future<Status> ended = Ended(&run);
    const Status status = tuner_->Study(std::move(run));
    EXPECT_TRUE(status.ok()) << status.ToString();
    return ended;
  }
  std::vector<int> Stages() const {
    std::vector<int> stages;
    for (const StudyStep& point : points_) stages.push_back(point.plan.stages);
    return stages;
  }

  std::vector<StudyStep> points_;  // written by the tuner's thread before the run's end
};

TEST_F(StudyTest, OneKernelAtEveryStageCountThatFits) {
  const int row = RowByName("tma_wgmma_128x256x64");
  ASSERT_GE(row, 0);
  backend_.SetPlanSeconds([](const Plan& plan) { return 1e-3 / plan.stages; });
  ASSERT_TRUE(Study({Problem(4096, 4096, 4096)}, row).get().ok());
  EXPECT_THAT(Stages(), ElementsAre(1, 2, 3, 4));
  for (const StudyStep& point : points_) {
    EXPECT_EQ(point.plan.row, row);
    EXPECT_EQ(point.plan.split_k, 1);
    EXPECT_FALSE(point.plan.pair);
    EXPECT_GT(point.plan.predicted_seconds, 0);
    EXPECT_EQ(point.timing.median_seconds, 1e-3 / point.plan.stages);
  }
  EXPECT_EQ(backend_.timed().size(), 1U);  // all stage counts in turns, by one timer
}

TEST_F(StudyTest, StagesAreClippedToWhatWasAskedAndToTheStepsOfK) {
  const int row = RowByName("tma_wgmma_128x256x64");
  ASSERT_TRUE(Study({Problem(4096, 4096, 4096)}, row, 2).get().ok());
  EXPECT_THAT(Stages(), ElementsAre(1, 2));
  points_.clear();
  ASSERT_TRUE(Study({Problem(128, 256, 128)}, row).get().ok());  // two K steps, one tile
  EXPECT_THAT(Stages(), ElementsAre(1, 2));
}

TEST_F(StudyTest, WithoutAKernelThePlannersChoiceIsStudied) {
  const GemmProblem problem = Problem(2048, 2048, 2048);
  ASSERT_TRUE(Study({problem}, std::nullopt).get().ok());
  ASSERT_FALSE(points_.empty());
  for (const StudyStep& point : points_) EXPECT_EQ(point.plan.row, planner_.PlanFor(problem)->row);
}

TEST_F(StudyTest, KernelThatCannotRunIsRefusedAsItsPlanWouldBe) {
  StudyRun run;
  run.problems = {Problem(64, 64, 64, DType::kF32)};
  run.row = RowByName("tma_wgmma_128x256x64");
  const Status status = tuner_->Study(std::move(run));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "plan.kernel");
}

TEST_F(StudyTest, TuneAndStudyAreOneAtATime) {
  backend_.HoldTimers();
  std::future<Status> ended = Study({Problem(256, 256, 256), Problem(64, 64, 64)}, std::nullopt);
  const Status second = Refused({Problem(64, 64, 64)});
  EXPECT_EQ(second.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(second.message(), HasSubstr("a study of 2 problems is running"));
  backend_.ReleaseTimers();
  EXPECT_TRUE(ended.get().ok());
}

}  // namespace
}  // namespace gemmd
