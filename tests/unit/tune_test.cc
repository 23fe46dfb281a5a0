// Tuning against a timer whose times the test makes up.
#include "kernels/plan/tune.h"

#include <algorithm>
#include <functional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/core/device_traits.h"
#include "tests/support/problems.h"

namespace gemmd {
namespace {

class FakeTimer : public PlanTimer {
 public:
  explicit FakeTimer(std::function<double(const Plan&)> seconds) : seconds_(std::move(seconds)) {}

  StatusOr<std::vector<PlanTiming>> Time(std::span<const Plan> plans, const TimingOptions& options,
                                         std::stop_token stop) override {
    if (stop.stop_requested()) return Cancelled("stopped");
    passes.emplace_back(plans.begin(), plans.end());
    rounds.push_back(options.rounds);
    std::vector<PlanTiming> timings;
    for (const Plan& plan : plans) {
      const double seconds = seconds_(plan);
      timings.push_back({seconds, seconds, seconds, {}});
    }
    return timings;
  }

  std::vector<std::vector<Plan>> passes;
  std::vector<int> rounds;

 private:
  const std::function<double(const Plan&)> seconds_;
};

TEST(TuneTest, FindsAPlanThatTheModelThinksSlower) {
  const Planner planner(H200Traits());
  const GemmProblem problem = Problem(4096, 4096, 4096);
  constexpr int kFast = RowByName("tma_wgmma_256x128x64");
  FakeTimer timer([](const Plan& plan) {
    return plan.predicted_seconds * (plan.row == kFast && !plan.pair ? 0.5 : 1.0);
  });
  const StatusOr<TuningEntry> entry = TuneProblem(planner, problem, timer, {}, {});
  ASSERT_TRUE(entry.ok()) << entry.status().ToString();
  EXPECT_EQ(entry->plans.front().plan.row, kFast);
  EXPECT_FALSE(entry->plans.front().plan.pair);
}

TEST(TuneTest, LooksOneStageFurtherThanTheModel) {
  const Planner planner(H200Traits());
  const GemmProblem problem = Problem(4096, 4096, 4096);
  const Plan model = *planner.PlanFor(problem);
  ASSERT_GT(model.stages, 1);
  FakeTimer timer([&](const Plan& plan) {
    Plan one_less = model;
    --one_less.stages;
    return SameLaunch(plan, one_less) ? 1e-6 : plan.predicted_seconds;
  });
  const StatusOr<TuningEntry> entry = TuneProblem(planner, problem, timer, {}, {});
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(entry->plans.front().plan.row, model.row);
  EXPECT_EQ(entry->plans.front().plan.stages, model.stages - 1);
}

TEST(TuneTest, LooksOnePartFurtherThanTheModel) {
  const Planner planner(H200Traits());
  const GemmProblem problem = Problem(512, 512, 32768);
  const Plan model = *planner.PlanFor(problem);
  ASSERT_GT(model.split_k, 1);
  FakeTimer timer([&](const Plan& plan) {
    return plan.split_k == model.split_k + 1 ? 1e-6 : plan.predicted_seconds;
  });
  const StatusOr<TuningEntry> entry = TuneProblem(planner, problem, timer, {}, {});
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(entry->plans.front().plan.split_k, model.split_k + 1);
}

TEST(TuneTest, KeepsTheModelsChoiceAndSortsByTime) {
  const Planner planner(H200Traits());
  const GemmProblem problem = Problem(4096, 4096, 4096);
  const Plan model = *planner.PlanFor(problem);
  FakeTimer timer([&](const Plan& plan) {
    return plan.row == model.row ? 2 * plan.predicted_seconds : plan.predicted_seconds;
  });
  const StatusOr<TuningEntry> entry = TuneProblem(planner, problem, timer, {}, {});
  ASSERT_TRUE(entry.ok());
  EXPECT_TRUE(std::is_sorted(entry->plans.begin(), entry->plans.end(),
                             [](const auto& x, const auto& y) { return x.seconds < y.seconds; }));
  EXPECT_TRUE(std::any_of(entry->plans.begin(), entry->plans.end(),
                          [&](const auto& measured) { return SameLaunch(measured.plan, model); }));
}

TEST(TuneTest, TimesNoPlanTwiceInAPassAndNoMoreThanAskedFor) {
  const Planner planner(H200Traits());
  FakeTimer timer([](const Plan& plan) { return plan.predicted_seconds; });
  ASSERT_TRUE(
      TuneProblem(planner, Problem(300, 4096, 8192), timer, {.candidates = 10, .finalists = 2}, {})
          .ok());
  ASSERT_EQ(timer.passes.size(), 2U);
  EXPECT_LE(timer.passes[0].size(), 10U);
  EXPECT_GT(timer.rounds[1], timer.rounds[0]);
  for (const std::vector<Plan>& pass : timer.passes) {
    for (size_t i = 0; i < pass.size(); ++i) {
      for (size_t j = 0; j < i; ++j)
        EXPECT_FALSE(SameLaunch(pass[i], pass[j])) << ToString(pass[i]);
    }
  }
}

TEST(TuneTest, AStopEndsItWithCancelled) {
  const Planner planner(H200Traits());
  FakeTimer timer([](const Plan& plan) { return plan.predicted_seconds; });
  std::stop_source stop;
  stop.request_stop();
  const StatusOr<TuningEntry> entry =
      TuneProblem(planner, Problem(64, 64, 64), timer, {}, stop.get_token());
  EXPECT_EQ(entry.status().code(), StatusCode::kCancelled);
}

TEST(TuneTest, TunesTheOnlyPlanOfACpu) {
  const Planner planner(CpuTraits());
  FakeTimer timer([](const Plan&) { return 1e-3; });
  GemmProblem problem = Problem(64, 64, 64);
  const StatusOr<TuningEntry> entry = TuneProblem(planner, problem, timer, {}, {});
  ASSERT_TRUE(entry.ok()) << entry.status().ToString();
  EXPECT_EQ(entry->plans.size(), 1U);
}

}  // namespace
}  // namespace gemmd
