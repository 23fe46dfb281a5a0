#include "kernels/plan/tuned_planner.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/problems.h"

namespace gemmd {
namespace {

PlanConstraints Asking(std::optional<int> row, std::optional<int> stages = std::nullopt,
                       std::optional<int> split_k = std::nullopt) {
  return {.row = row, .stages = stages, .split_k = split_k};
}

// What an answer is, all of it.
std::string Everything(const Plan& plan) {
  return ToString(plan) + " from " + std::string(Name(plan.source)) + " early " +
         std::to_string(plan.early_start) + " resident " + std::to_string(plan.resident_blocks) +
         " smem " + std::to_string(plan.smem_bytes) + " predicted " +
         std::to_string(plan.predicted_seconds * 1e9) + " measured " +
         std::to_string(plan.measured_seconds * 1e9);
}

Plan OkPlan(const TunedPlanner& planner, const GemmProblem& problem,
            const PlanConstraints& constraints = {}) {
  const StatusOr<Plan> plan = planner.PlanFor(problem, constraints);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return plan.ok() ? *plan : Plan{};
}

// The model's candidates number `first` and the one after it of another row, the first of the two
// measured to be slower than the second.
TuningEntry TheSecondWins(const Planner& model, const GemmProblem& problem) {
  const std::vector<Plan> plans = model.Candidates(problem);
  const auto other = std::find_if(plans.begin(), plans.end(),
                                  [&](const Plan& plan) { return plan.row != plans[0].row; });
  EXPECT_NE(other, plans.end());
  return {problem, {{plans[0], 20e-3}, {*other, 10e-3}}};
}

TEST(CompleteTest, GivesEveryCandidateAsItIs) {
  for (const DeviceTraits& traits : {H200Traits(), CpuTraits()}) {
    const Planner planner(traits);
    for (const GemmProblem& p : {Problem(4096, 4096, 4096), Problem(1, 4096, 4096),
                                 Problem(128, 128, 65536), Problem(64, 64, 0)}) {
      for (const Plan& plan : planner.Candidates(p)) {
        const Plan choice{
            .row = plan.row, .stages = plan.stages, .split_k = plan.split_k, .pair = plan.pair};
        const StatusOr<Plan> complete = planner.Complete(p, choice);
        ASSERT_TRUE(complete.ok()) << complete.status().ToString();
        EXPECT_EQ(Everything(*complete), Everything(plan));
      }
    }
  }
}

TEST(CompleteTest, RefusesWhatCannotRun) {
  const Planner h200(H200Traits());
  const GemmProblem p = Problem(4096, 4096, 4096);
  const int ring = RowByName("tma_wgmma_128x128x64"), gemv = RowByName("gemv"),
            blas = RowByName("openblas"), epilogue = RowByName("epilogue_only"),
            pingpong = RowByName("tma_pingpong_128x128x64"), simt = RowByName("simt_64x64x16"),
            cp_async = RowByName("cp_async_128x128x64");
  const Plan refused[] = {
      {.row = -1},
      {.row = kKernelRows, .stages = 2},
      {.row = ring, .stages = 0},
      {.row = ring, .stages = -1},
      {.row = ring, .stages = 7},
      {.row = ring, .stages = 2, .split_k = 0},
      {.row = ring, .stages = 2, .split_k = -2},
      {.row = ring, .stages = 2, .split_k = 1'000'000},
      {.row = pingpong, .stages = 2, .split_k = 2},
      {.row = cp_async, .stages = 2, .pair = true},
      {.row = simt, .stages = 2},
      {.row = gemv},
      {.row = blas},
      {.row = epilogue},
  };
  for (const Plan& plan : refused) {
    const StatusOr<Plan> answer = h200.Complete(p, plan);
    EXPECT_EQ(answer.status().code(), StatusCode::kInvalidArgument) << plan.row;
    EXPECT_EQ(answer.status().field(), "plan");
  }
  EXPECT_FALSE(h200.Complete(Problem(0, 64, 64), {.row = ring, .stages = 2}).ok());
  EXPECT_FALSE(h200.Complete(Problem(64, 64, 0), {.row = ring, .stages = 2}).ok());
  EXPECT_TRUE(h200.Complete(Problem(64, 64, 0), {.row = epilogue}).ok());
  EXPECT_EQ(
      h200.Complete(Problem(64, 64, 64, DType::kF64), {.row = ring, .stages = 2}).status().code(),
      StatusCode::kUnimplemented);
  EXPECT_FALSE(Planner(CpuTraits()).Complete(p, {.row = ring, .stages = 2}).ok());
}

TEST(FastestButTest, IsTheModelsChoiceUnlessThatIsExcluded) {
  const Planner planner(H200Traits());
  const GemmProblem p = Problem(4096, 4096, 4096);
  const StatusOr<Plan> choice = planner.PlanFor(p);
  ASSERT_TRUE(choice.ok());
  const std::optional<Plan> first = planner.FastestBut(p, {});
  ASSERT_TRUE(first);
  EXPECT_EQ(Everything(*first), Everything(*choice));
  const std::optional<Plan> second = planner.FastestBut(p, {&*choice, 1});
  ASSERT_TRUE(second);
  EXPECT_FALSE(SameLaunch(*second, *choice));
  EXPECT_GE(second->predicted_seconds, choice->predicted_seconds);
}

TEST(TunedPlannerTest, AnswersAsTheModelUntilItLearns) {
  const TunedPlanner planner(H200Traits());
  for (const GemmProblem& p : {Problem(4096, 4096, 4096), Problem(1, 4096, 4096),
                               Problem(64, 64, 0), Problem(0, 64, 64)}) {
    const StatusOr<Plan> model = planner.model().PlanFor(p);
    ASSERT_TRUE(model.ok());
    EXPECT_EQ(Everything(OkPlan(planner, p)), Everything(*model));
  }
  EXPECT_EQ(planner.PlanFor(Problem(64, 64, 64, DType::kF64)).status().code(),
            StatusCode::kUnimplemented);
}

TEST(TunedPlannerTest, TheFastestMeasuredIsTakenAndSaysSo) {
  TunedPlanner planner(H200Traits());
  const GemmProblem p = Problem(4096, 4096, 4096);
  const TuningEntry entry = TheSecondWins(planner.model(), p);
  ASSERT_TRUE(planner.Learn(entry));
  const Plan plan = OkPlan(planner, p);
  EXPECT_TRUE(SameLaunch(plan, entry.plans[1].plan));
  EXPECT_EQ(plan.source, PlanSource::kMeasured);
  EXPECT_EQ(plan.limit, StageLimit::kMeasured);
  EXPECT_EQ(plan.measured_seconds, 10e-3);
  EXPECT_EQ(plan.predicted_seconds, entry.plans[1].plan.predicted_seconds);
}

TEST(TunedPlannerTest, ASecondQuestionGetsTheSameAnswer) {
  TunedPlanner planner(H200Traits());
  planner.Learn(TheSecondWins(planner.model(), Problem(2048, 2048, 2048)));
  const PlanConstraints free, four = Asking({}, 4), split = Asking({}, {}, 1),
                              row = Asking(RowByName("cp_async_128x128x64"));
  for (const PlanConstraints& constraints : {free, four, split, row}) {
    for (const int64_t extent : {512, 2048, 2056, 4096}) {
      const GemmProblem p = Problem(extent, extent, extent);
      TunedPlanner fresh(H200Traits());
      for (TuningEntry& entry : planner.Learnt()) fresh.Learn(std::move(entry));
      const std::string first = Everything(OkPlan(planner, p, constraints));
      EXPECT_EQ(Everything(OkPlan(planner, p, constraints)), first);
      EXPECT_EQ(Everything(OkPlan(fresh, p, constraints)), first) << "whatever was asked before";
    }
  }
}

TEST(TunedPlannerTest, WhatWasAskedBeforeIsNotConfusedWithAnother) {
  const TunedPlanner planner(H200Traits());
  GemmProblem p = Problem(512, 512, 512);
  p.batch = 4;
  p = WithPackedLayouts(p);
  std::vector<GemmProblem> problems(9, p);
  problems[1].beta = 1;
  problems[2].a.batch_stride = 0;
  problems[3].b.batch_stride = 0;
  problems[4].op_a = Op::kT;
  problems[5].op_b = Op::kT;
  problems[6].alpha = 0;
  problems[7].type_d = DType::kF32;
  problems[8].batch = 5;
  for (int round = 0; round < 2; ++round) {
    for (const GemmProblem& problem : problems) {
      EXPECT_EQ(Everything(OkPlan(planner, problem)),
                Everything(*planner.model().PlanFor(problem)));
    }
  }
}

TEST(TunedPlannerTest, LearningChangesTheAnswerToAQuestionAskedBefore) {
  TunedPlanner planner(H200Traits());
  const GemmProblem p = Problem(4096, 4096, 4096), near = Problem(4096, 4096, 4608);
  const Plan before = OkPlan(planner, p);
  OkPlan(planner, near);
  TuningEntry entry = TheSecondWins(planner.model(), p);
  planner.Learn(entry);
  EXPECT_TRUE(SameLaunch(OkPlan(planner, p), entry.plans[1].plan));
  EXPECT_EQ(OkPlan(planner, near).row, entry.plans[1].plan.row);
  std::swap(entry.plans[0].seconds, entry.plans[1].seconds);
  planner.Learn(entry);
  EXPECT_TRUE(SameLaunch(OkPlan(planner, p), before));
  EXPECT_EQ(planner.entries(), 1U) << "one entry a problem";
}

TEST(TunedPlannerTest, NearAMeasuredProblemTheModelIsCorrected) {
  TunedPlanner planner(H200Traits());
  const GemmProblem there = Problem(4096, 4096, 4096), here = Problem(4096, 4224, 4096);
  const TuningEntry entry = TheSecondWins(planner.model(), there);
  planner.Learn(entry);
  const Plan plan = OkPlan(planner, here);
  EXPECT_TRUE(SameLaunch(plan, entry.plans[1].plan));
  EXPECT_EQ(plan.source, PlanSource::kMeasured);
  EXPECT_EQ(plan.limit, StageLimit::kMeasured);
  EXPECT_EQ(plan.measured_seconds, 0) << "this problem was not measured";
  EXPECT_EQ(Everything(OkPlan(planner, Problem(4096, 8192, 4096))),
            Everything(*planner.model().PlanFor(Problem(4096, 8192, 4096))))
      << "too far away";
}

TEST(TunedPlannerTest, NearAMeasuredProblemPlansThatWereNotMeasuredCompete) {
  TunedPlanner planner(H200Traits());
  const GemmProblem there = Problem(4096, 4096, 4096), here = Problem(4096, 4224, 4096);
  // The model's worst plan, measured to be as the model says: it stays the worst.
  const Plan worst = planner.model().Candidates(there).back();
  planner.Learn({there, {{worst, worst.predicted_seconds}}});
  const Plan plan = OkPlan(planner, here);
  EXPECT_EQ(Everything(plan), Everything(*planner.model().PlanFor(here)));
  EXPECT_EQ(plan.source, PlanSource::kModel);
}

TEST(TunedPlannerTest, NearAMeasuredProblemStagesAreAtMostTheKSteps) {
  TunedPlanner planner(H200Traits());
  // cp.async walks K in steps of 64 and starts its ring anew for each tile.
  const int row = RowByName("cp_async_128x128x64");
  const GemmProblem there = Problem(8192, 8192, 320);
  // Far faster than the model says, where most others are not.
  ASSERT_TRUE(planner.Learn({there,
                             {{{.row = row, .stages = 5}, 1e-9},
                              {{.row = RowByName("cp_async_64x64x64"), .stages = 2}, 1.0},
                              {{.row = RowByName("cp_async_128x64x64"), .stages = 2}, 1.0}}}));
  for (const auto& [k, stages] : {std::pair{320, 5}, {288, 5}, {272, 5}}) {
    const Plan plan = OkPlan(planner, Problem(8192, 8184, k));
    EXPECT_EQ(plan.row, row);
    EXPECT_EQ(plan.stages, stages) << k;
    EXPECT_EQ(plan.source, PlanSource::kMeasured);
  }
  TunedPlanner shorter(H200Traits());
  for (TuningEntry entry : planner.Learnt()) {
    entry.problem = Problem(8192, 8192, 304);
    ASSERT_TRUE(shorter.Learn(std::move(entry)));
  }
  EXPECT_EQ(OkPlan(shorter, Problem(8192, 8192, 256)).stages, 4) << "256 takes 4 steps of 64";
}

TEST(TunedPlannerTest, ConstraintsAreKeptAndTheFastestMeasuredOfThemIsTaken) {
  TunedPlanner planner(H200Traits());
  const GemmProblem p = Problem(4096, 4096, 4096);
  const int row = RowByName("cp_async_128x128x64");
  ASSERT_TRUE(planner.Learn({p,
                             {{{.row = RowByName("cp_async_64x64x64"), .stages = 2}, 1e-3},
                              {{.row = row, .stages = 5}, 2e-3},
                              {{.row = row, .stages = 2}, 3e-3}}}));
  const Plan forced = OkPlan(planner, p, Asking(row));
  EXPECT_EQ(forced.row, row);
  EXPECT_EQ(forced.stages, 5);
  EXPECT_EQ(forced.source, PlanSource::kForced);
  EXPECT_EQ(forced.limit, StageLimit::kMeasured);
  EXPECT_EQ(forced.measured_seconds, 2e-3);
  const Plan both = OkPlan(planner, p, Asking(row, 2));
  EXPECT_EQ(both.limit, StageLimit::kForced);
  EXPECT_EQ(both.measured_seconds, 3e-3);
  const PlanConstraints unmeasured = Asking(row, 3);
  EXPECT_EQ(Everything(OkPlan(planner, p, unmeasured)),
            Everything(*planner.model().PlanFor(p, unmeasured)));
  EXPECT_EQ(planner.PlanFor(p, Asking(row, 9)).status().code(), StatusCode::kInvalidArgument);
}

TEST(TunedPlannerTest, CandidatesAreTheMeasuredFirstAndThenTheModels) {
  TunedPlanner planner(H200Traits());
  const GemmProblem p = Problem(128, 128, 65536);
  const Plan odd_split{.row = RowByName("tma_wgmma_128x64x64"), .stages = 3, .split_k = 7};
  const std::vector<Plan> before = planner.Candidates(p);
  ASSERT_TRUE(std::none_of(before.begin(), before.end(),
                           [&](const Plan& plan) { return SameLaunch(plan, odd_split); }));
  ASSERT_TRUE(planner.Learn({p, {{before[5], 2e-3}, {odd_split, 1e-3}}}));
  const std::vector<Plan> after = planner.Candidates(p);
  ASSERT_EQ(after.size(), before.size() + 1) << "each once";
  EXPECT_TRUE(SameLaunch(after[0], odd_split));
  EXPECT_TRUE(SameLaunch(after[0], OkPlan(planner, p)));
  EXPECT_EQ(after[0].measured_seconds, 1e-3);
  EXPECT_TRUE(SameLaunch(after[1], before[5]));
  EXPECT_EQ(after[1].measured_seconds, 2e-3);
  EXPECT_EQ(Everything(after[2]), Everything(before[0]));
  for (const Plan& plan : planner.Candidates(p, Asking({}, 3))) EXPECT_EQ(plan.stages, 3);
}

TEST(TunedPlannerTest, OnACpuTheOnePlanIsMeasuredWithoutStages) {
  TunedPlanner planner(CpuTraits());
  const GemmProblem p = Problem(512, 512, 512, DType::kF32);
  ASSERT_TRUE(planner.Learn({p, {{{.row = RowByName("openblas")}, 1e-3}}}));
  const Plan plan = OkPlan(planner, p);
  EXPECT_EQ(plan.source, PlanSource::kMeasured);
  EXPECT_EQ(plan.limit, StageLimit::kNone);
  EXPECT_EQ(plan.measured_seconds, 1e-3);
  EXPECT_EQ(OkPlan(planner, Problem(512, 512, 520, DType::kF32)).source, PlanSource::kMeasured);
  EXPECT_EQ(planner.Candidates(p).size(), 1U);
}

TEST(TunedPlannerTest, LearnsNothingThatCannotBe) {
  TunedPlanner planner(H200Traits());
  const GemmProblem p = Problem(512, 512, 512);
  const Plan good{.row = RowByName("cp_async_128x128x64"), .stages = 2};
  EXPECT_FALSE(planner.Learn({p, {}}));
  EXPECT_FALSE(planner.Learn({p, {{{.row = 99, .stages = 2}, 1e-3}}}));
  EXPECT_FALSE(planner.Learn({p, {{good, 0}}}));
  EXPECT_FALSE(planner.Learn({p, {{good, -1}}}));
  EXPECT_FALSE(planner.Learn({p, {{good, std::numeric_limits<double>::infinity()}}}));
  EXPECT_FALSE(planner.Learn({p, {{good, std::numeric_limits<double>::quiet_NaN()}}}));
  EXPECT_FALSE(planner.Learn({Problem(0, 512, 512), {{good, 1e-3}}}));
  EXPECT_EQ(planner.entries(), 0U);
  EXPECT_TRUE(planner.Learn({p, {{{.row = 99, .stages = 2}, 1e-4}, {good, 1e-3}}}));
  ASSERT_EQ(planner.Learnt().size(), 1U);
  EXPECT_EQ(planner.Learnt()[0].plans.size(), 1U) << "only what can run";
}

TEST(TunedPlannerTest, KeepsTheFastestOfManyPlans) {
  TunedPlanner planner(H200Traits());
  TuningEntry entry{Problem(4096, 4096, 4096), {}};
  double seconds = 1.0;
  for (const Plan& plan : planner.model().Candidates(entry.problem)) {
    entry.plans.push_back({plan, seconds /= 1.1});
  }
  ASSERT_GT(entry.plans.size(), TunedPlanner::kMaxPlans);
  ASSERT_TRUE(planner.Learn(entry));
  const TuningEntry learnt = planner.Learnt()[0];
  ASSERT_EQ(learnt.plans.size(), TunedPlanner::kMaxPlans);
  EXPECT_EQ(learnt.plans[0].seconds, seconds) << "the last was the fastest";
}

TEST(TunedPlannerTest, ManyMoreProblemsThanItRemembersGetTheModelsAnswers) {
  const TunedPlanner planner(H200Traits());
  for (int round = 0; round < 2; ++round) {
    for (int64_t m = 1; m <= 10'000; m += round == 0 ? 1 : 97) {
      const GemmProblem p = Problem(m, 64, 64, DType::kF32);
      ASSERT_EQ(OkPlan(planner, p).predicted_seconds,
                planner.model().PlanFor(p)->predicted_seconds);
    }
  }
}

// With which the TMA kernels are no longer the fastest.
Calibration SlowTma() {
  Calibration calibration = kH200Calibration;
  calibration.tma->flops_per_clock /= 10;
  return calibration;
}

TEST(TunedPlannerTest, CalibrationChangesTheAnswerToAQuestionAskedBefore) {
  TunedPlanner planner(H200Traits());
  const GemmProblem p = Problem(4096, 4096, 4096);
  const Plan before = OkPlan(planner, p);
  EXPECT_FALSE(planner.calibration());
  ASSERT_TRUE(planner.Calibrate(SlowTma()).ok());
  EXPECT_EQ(planner.calibration(), SlowTma());
  DeviceTraits traits = H200Traits();
  traits.calibration = SlowTma();
  const Plan after = OkPlan(planner, p);
  EXPECT_EQ(Everything(after), Everything(*Planner(traits).PlanFor(p)));
  EXPECT_FALSE(SameLaunch(after, before));
  ASSERT_TRUE(planner.Calibrate(kH200Calibration).ok());
  EXPECT_EQ(Everything(OkPlan(planner, p)), Everything(before));
}

TEST(TunedPlannerTest, ACalibrationThatCannotBeChangesNothing) {
  TunedPlanner planner(H200Traits());
  const GemmProblem p = Problem(4096, 4096, 4096);
  const Plan before = OkPlan(planner, p);
  Calibration bad = kH200Calibration;
  bad.tma->bytes_per_clock = 0;
  EXPECT_EQ(planner.Calibrate(bad).code(), StatusCode::kInternal);
  EXPECT_FALSE(planner.calibration());
  EXPECT_EQ(Everything(OkPlan(planner, p)), Everything(before));
}

TEST(TunedPlannerTest, CalibrationKeepsWhatWasMeasuredAndCorrectsTheNewModelByIt) {
  TunedPlanner planner(H200Traits()), calibrated_first(H200Traits());
  const GemmProblem there = Problem(4096, 4096, 4096), here = Problem(4096, 4224, 4096);
  const TuningEntry entry = TheSecondWins(planner.model(), there);
  ASSERT_TRUE(planner.Learn(entry));
  ASSERT_TRUE(planner.Calibrate(SlowTma()).ok());
  ASSERT_TRUE(calibrated_first.Calibrate(SlowTma()).ok());
  ASSERT_TRUE(calibrated_first.Learn(entry));
  EXPECT_TRUE(SameLaunch(OkPlan(planner, there), entry.plans[1].plan));
  EXPECT_EQ(Everything(OkPlan(planner, here)), Everything(OkPlan(calibrated_first, here)));
}

TEST(TunedPlannerTest, WhoeverAsksAfterCalibrationGetsTheNewModel) {
  TunedPlanner planner(H200Traits());
  const GemmProblem p = Problem(4096, 4096, 4096);
  std::atomic<bool> stop = false;
  std::vector<std::thread> askers;
  for (int i = 0; i < 3; ++i) {
    askers.emplace_back([&] {
      while (!stop) OkPlan(planner, p);
    });
  }
  for (int i = 0; i < 100; ++i) {
    Calibration calibration = kH200Calibration;
    calibration.tma->latency_clocks += i;
    ASSERT_TRUE(planner.Calibrate(calibration).ok());
    EXPECT_EQ(Everything(OkPlan(planner, p)), Everything(*planner.model().PlanFor(p))) << i;
  }
  stop = true;
  for (std::thread& asker : askers) asker.join();
}

TEST(TunedPlannerTest, WhoeverAsksAfterLearningGetsWhatWasLearnt) {
  TunedPlanner planner(H200Traits());
  const GemmProblem p = Problem(1024, 1024, 1024);
  TuningEntry entry = TheSecondWins(planner.model(), p);
  std::atomic<bool> stop = false;
  std::vector<std::thread> askers;
  for (int i = 0; i < 3; ++i) {
    askers.emplace_back([&] {
      while (!stop) OkPlan(planner, p);
    });
  }
  for (int i = 0; i < 200; ++i) {
    std::swap(entry.plans[0].seconds, entry.plans[1].seconds);
    planner.Learn(entry);
    const size_t winner = entry.plans[0].seconds < entry.plans[1].seconds ? 0 : 1;
    EXPECT_TRUE(SameLaunch(OkPlan(planner, p), entry.plans[winner].plan)) << i;
  }
  stop = true;
  for (std::thread& asker : askers) asker.join();
}

}  // namespace
}  // namespace gemmd
