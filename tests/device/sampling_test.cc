// Program counter sampling on a device: whose samples they are, and what the ranges of code mean.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_probe.h"
#include "kernels/pc_sampler.h"
#include "kernels/plan/planner.h"

namespace gemmd {
namespace {

constexpr int kRow = RowByName("tma_wgmma_128x128x64");

int64_t SamplesIn(const RangeSamples& range) {
  return std::accumulate(range.by_reason.begin(), range.by_reason.end(), int64_t{0});
}

// Of the ranges of one kind, or of all.
int64_t SamplesOf(const PcSamples& samples, int kernel, const CodeKind* kind = nullptr) {
  int64_t sum = 0;
  for (const FunctionSamples& function : samples.functions) {
    if (function.kernel != kernel) continue;
    for (const RangeSamples& range : function.ranges) {
      if (kind == nullptr || range.range.kind == *kind) sum += SamplesIn(range);
    }
  }
  return sum;
}

double ShareOf(const PcSamples& samples, CodeKind kind) {
  return static_cast<double>(SamplesOf(samples, kRow, &kind)) /
         static_cast<double>(SamplesOf(samples, kRow));
}

class SamplingTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    StatusOr<std::unique_ptr<Backend>> made = MakeCudaBackend(0, {.lanes = 1,
                                                                  .device_pool_bytes = 1 << 20,
                                                                  .pinned_pool_bytes = 1 << 20,
                                                                  .pc_sampling_percent = 100});
    if (made.ok()) {
      backend_ = made->release();
    } else {
      why_ = new std::string(made.status().ToString());
    }
  }
  static void TearDownTestSuite() {
    delete backend_;
    delete why_;
  }
  void SetUp() override {
    if (backend_ == nullptr) GTEST_SKIP() << *why_;
    if (backend_->sampler() == nullptr) GTEST_SKIP() << backend_->sampling_status().ToString();
    if (backend_->traits().compute_capability != 90) GTEST_SKIP() << "no TMA kernels";
    problem_.m = problem_.n = 4096, problem_.k = 4096;
    problem_.type_a = problem_.type_b = problem_.type_d = DType::kBF16;
    problem_ = WithPackedLayouts(problem_);
    timer_ = *backend_->MakePlanTimer(problem_);
  }

  Plan PlanAt(int stages) const {
    const Planner planner(backend_->traits());
    return *planner.PlanFor(problem_, {.row = kRow, .stages = stages, .split_k = 1});
  }

  // All that was sampled since the last reading.
  StatusOr<PcSamples> Settled() {
    std::this_thread::sleep_for(backend_->sampler()->delay());
    return backend_->sampler()->Read();
  }

  // What was sampled in some milliseconds of nothing but this plan.
  PcSamples Sample(const Plan& plan) {
    EXPECT_TRUE(Settled().ok());
    EXPECT_TRUE(timer_->Time({&plan, 1}, {.rounds = 3, .sample_seconds = 0.05}, {}).ok());
    StatusOr<PcSamples> samples = Settled();
    EXPECT_TRUE(samples.ok()) << samples.status().ToString();
    return samples.ok() ? *samples : PcSamples();
  }

  static Backend* backend_;
  static std::string* why_;
  GemmProblem problem_;
  std::unique_ptr<PlanTimer> timer_;
};
Backend* SamplingTest::backend_ = nullptr;
std::string* SamplingTest::why_ = nullptr;

TEST_F(SamplingTest, SamplesAreOfTheKernelThatRan) {
  const PcSamples samples = Sample(PlanAt(4));
  int64_t all = 0;
  for (int kernel = 0; kernel < kSampledKernels; ++kernel) all += SamplesOf(samples, kernel);
  EXPECT_GT(SamplesOf(samples, kRow), 1000);
  EXPECT_GT(static_cast<double>(SamplesOf(samples, kRow)), 0.95 * static_cast<double>(all));
}

TEST_F(SamplingTest, AWaitForAFullStageIsSeenAsSuchWhereThereIsOneStageOnly) {
  const PcSamples one = Sample(PlanAt(1));
  const PcSamples many = Sample(PlanAt(6));
  EXPECT_GT(ShareOf(one, CodeKind::kWaitFull), 2 * ShareOf(many, CodeKind::kWaitFull));
  EXPECT_GT(ShareOf(many, CodeKind::kTensorMath), ShareOf(one, CodeKind::kTensorMath));
}

TEST_F(SamplingTest, WhatWasReadIsNotReadAgain) {
  Sample(PlanAt(4));
  const StatusOr<PcSamples> samples = Settled();
  ASSERT_TRUE(samples.ok()) << samples.status().ToString();
  EXPECT_LT(SamplesOf(*samples, kRow), 100);
}

// CUPTI's own start and stop do not return then.
TEST_F(SamplingTest, ReadsWhileOtherThreadsLaunch) {
  std::atomic<bool> stop{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const std::unique_ptr<PlanTimer> timer = *backend_->MakePlanTimer(problem_);
      const Plan plan = PlanAt(4);
      while (!stop) EXPECT_TRUE(timer->Time({&plan, 1}, {.rounds = 1}, {}).ok());
    });
  }
  int64_t samples = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (std::chrono::steady_clock::now() < until) {
    const StatusOr<PcSamples> read = backend_->sampler()->Read();
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    samples += SamplesOf(*read, kRow);
    std::this_thread::yield();
  }
  stop = true;
  threads.clear();
  EXPECT_GT(samples, 1000);
}

}  // namespace
}  // namespace gemmd
