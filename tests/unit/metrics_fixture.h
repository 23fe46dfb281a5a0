// An engine on a manual backend and everything that is exported of it.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include "kernels/plan/tuned_planner.h"
#include "server/metrics/call_metrics.h"
#include "server/metrics/pool_collector.h"
#include "server/metrics/prometheus_observer.h"
#include "server/metrics/tuning_metrics.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/manual_backend.h"

namespace gemmd::testing {

using Families = std::vector<prometheus::MetricFamily>;
using Labels = std::map<std::string, std::string>;

inline Labels LabelsOf(const prometheus::ClientMetric& metric) {
  Labels labels;
  for (const auto& label : metric.label) labels.emplace(label.name, label.value);
  return labels;
}

// Of the one series with these labels; its number of observations where it is a histogram.
inline double ValueOf(const Families& families, const std::string& name,
                      const Labels& labels = {}) {
  for (const auto& family : families) {
    if (family.name != name) continue;
    for (const auto& metric : family.metric) {
      if (LabelsOf(metric) != labels) continue;
      switch (family.type) {
        case prometheus::MetricType::Counter: return metric.counter.value;
        case prometheus::MetricType::Gauge: return metric.gauge.value;
        default: return static_cast<double>(metric.histogram.sample_count);
      }
    }
  }
  ADD_FAILURE() << "no series " << name;
  return -1;
}

// An engine on a manual backend, measured as the server measures it.
class MetricsTest : public ::testing::Test {
 protected:
  void Start(DeviceTraits traits = CpuTraits(), EngineOptions options = {}) {
    backend_ = std::make_unique<ManualBackend>(
        ManualBackendOptions{.lanes = 2, .traits = std::move(traits)});
    engine_ = std::make_unique<Engine>(options, std::vector<Backend*>{backend_.get()}, &observer_);
    collector_ = std::make_shared<PoolCollector>(
        *engine_, replies_, std::vector<const Backend*>{backend_.get()},
        ServerFacts{.version = "1.2.3", .revision = "abc", .started = {}});
  }
  void TearDown() override {
    if (backend_ != nullptr) backend_->CompleteAll();
    engine_.reset();
  }

  std::shared_ptr<Call> Send(SubmitOptions options = {}, RequestId* id = nullptr) {
    auto call = std::make_shared<Call>();
    const StatusOr<RequestId> sent = engine_->Submit(MakeRequest(call, options));
    EXPECT_TRUE(sent.ok()) << sent.status().ToString();
    if (id != nullptr && sent.ok()) *id = *sent;
    return call;
  }

  Families Scrape() const {
    Families families = registry_->Collect();
    const Families pools = collector_->Collect();
    families.insert(families.end(), pools.begin(), pools.end());
    return families;
  }

  // Every end that a request can have.
  void RunOneOfEachKind() {
    Send({.m = 0})->Wait();
    const auto done = Send();
    backend_->WaitForStarted(1);
    const auto failed = Send();
    backend_->WaitForStarted(2);
    RequestId id = 0;
    const auto cancelled = Send({}, &id);
    const auto expired = Send({.deadline = SteadyClock::now() + std::chrono::milliseconds(5)});
    engine_->Cancel(id);
    expired->Wait();
    LaneResult result;
    result.times.kernel = std::chrono::microseconds(50);
    backend_->CompleteNext(result);
    result.status = Internal("device error");
    backend_->CompleteNext(result);
    failed->Wait();
    engine_->StartDrain();
    EXPECT_FALSE(engine_->Submit(MakeRequest(std::make_shared<Call>(), {})).ok());
    engine_->WaitIdle(SteadyClock::time_point::max());
  }

  // Tells the observer of every plan that the planner makes for an H200, whatever a request asks
  // for. Returns how many they were.
  int RunEveryPlan() {
    TunedPlanner planner(H200Traits());
    int plans = 0;
    // Every 5th plan, so that each kernel has a measured one.
    const auto learn = [&](const GemmProblem& problem) {
      TuningEntry entry{problem, {}};
      const std::vector<Plan> candidates = planner.model().Candidates(problem);
      for (size_t i = 0; i < candidates.size(); i += 5) {
        entry.plans.push_back({candidates[i], 1e-3 / static_cast<double>(i + 1)});
      }
      planner.Learn(std::move(entry));
    };
    const auto run = [&](const GemmProblem& problem, const PlanConstraints& constraints) {
      const StatusOr<Plan> plan = planner.PlanFor(problem, constraints);
      if (!plan.ok()) return;
      GemmRequest request;
      request.problem = problem;
      GemmResult result;
      result.plan = *plan;
      observer_.Completed(request, result);
      ++plans;
    };
    for (const DType type : {DType::kF16, DType::kF32}) {
      for (const int64_t k : {0, 1, 40, 200, 5000}) {
        for (const int64_t m : {0, 1, 300, 8000}) {
          GemmProblem problem;
          problem.m = problem.n = m;
          problem.k = k;
          problem.type_a = problem.type_b = problem.type_d = type;
          problem = WithPackedLayouts(problem);
          for (const bool measured : {false, true}) {
            if (measured) learn(problem);
            run(problem, {});
            for (int row = 0; row < kKernelRows; ++row) {
              run(problem, {.row = row, .stages = {}, .split_k = {}});
              for (int stages = 1; stages <= 8; ++stages) {
                run(problem, {.row = row, .stages = stages, .split_k = {}});
              }
            }
          }
        }
      }
    }
    return plans;
  }

  // A launch of a kernel with a ring, whose cycles were counted.
  void RunARing() {
    GemmResult result;
    result.plan = {.row = 1, .stages = 4, .limit = StageLimit::kResidency};
    result.stalls = {.measured = true, .mainloop = 1, .k_tiles = 1};
    observer_.Completed({}, result);
  }

  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  PrometheusObserver observer_{*registry_};
  CallMetrics calls_{*registry_};
  TuningMetrics tuning_{*registry_};
  ReplyBudget replies_{100};
  std::unique_ptr<ManualBackend> backend_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<PoolCollector> collector_;
};

}  // namespace gemmd::testing
