// What every test of the engine needs: a manual backend, an observer that counts, calls that record
// their end, and a tear-down that checks that nothing was lost.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/engine/engine.h"
#include "tests/support/manual_backend.h"

namespace gemmd::testing {

class RecordingObserver : public EngineObserver {
 public:
  void Admitted(const GemmRequest&) override { ++admitted; }
  void Rejected(RejectReason reason) override {
    MutexLock lock(mu_);
    rejected_.push_back(reason);
  }
  void Completed(const GemmRequest&, const GemmResult& result) override {
    ++completed;
    if (!result.status.ok()) ++failed;
  }
  std::vector<RejectReason> rejected() const {
    MutexLock lock(mu_);
    return rejected_;
  }

  std::atomic<int> admitted{0}, completed{0}, failed{0};

 private:
  mutable Mutex mu_;
  std::vector<RejectReason> rejected_ GUARDED_BY(mu_);
};

// One request as its caller sees it.
struct Call {
  std::atomic<int> done_runs{0};
  std::promise<GemmResult> promise;
  std::future<GemmResult> result = promise.get_future();
  std::vector<std::byte> d;
  bool no_memory = false;

  bool ended() const { return done_runs > 0; }
  GemmResult Wait() { return result.get(); }
};

struct SubmitOptions {
  int64_t m = 8, n = 8, k = 8;
  int64_t bytes = 100;
  DType type = DType::kF32;
  SteadyClock::time_point deadline = SteadyClock::time_point::max();
  PlanConstraints constraints = {};
};

inline std::unique_ptr<GemmRequest> MakeRequest(const std::shared_ptr<Call>& call,
                                                SubmitOptions options) {
  auto request = std::make_unique<GemmRequest>();
  GemmProblem problem;
  problem.m = options.m;
  problem.n = options.n;
  problem.k = options.k;
  problem.type_a = problem.type_b = problem.type_d = options.type;
  request->problem = WithPackedLayouts(problem);
  request->constraints = options.constraints;
  request->bytes = options.bytes;
  request->deadline = options.deadline;
  request->decode = std::chrono::microseconds(7);
  request->allocate_result = [call](int64_t bytes) -> std::byte* {
    if (call->no_memory) return nullptr;
    call->d.resize(static_cast<size_t>(bytes));
    return call->d.data();
  };
  request->done = [call](GemmResult result) {
    if (++call->done_runs == 1) call->promise.set_value(std::move(result));
  };
  return request;
}

class EngineFixture : public ::testing::Test {
 protected:
  // Ends every test in the same way: nothing waits or runs, everything was answered once.
  void TearDown() override {
    for (const auto& backend : backends_) backend->CompleteAll();
    if (engine_ == nullptr) return;
    engine_->StartDrain();
    ASSERT_TRUE(engine_->WaitIdle(SteadyClock::now() + std::chrono::seconds(30)));
    EXPECT_EQ(engine_->queued_requests(), 0);
    EXPECT_EQ(engine_->queued_bytes(), 0);
    EXPECT_EQ(engine_->running_requests(), 0);
    EXPECT_EQ(observer_.admitted, observer_.completed);
    for (const auto& call : calls_) EXPECT_EQ(call->done_runs, 1);
    // A dispatcher that found nothing for its lane may hold it until it ends.
    engine_.reset();
    for (const auto& backend : backends_) EXPECT_EQ(backend->usage().lanes_in_use, 0);
  }

  ManualBackend& AddBackend(ManualBackendOptions options = {}) {
    backends_.push_back(std::make_unique<ManualBackend>(std::move(options)));
    return *backends_.back();
  }
  Engine& Start(EngineOptions options = {}) {
    std::vector<Backend*> backends;
    for (const auto& backend : backends_) backends.push_back(backend.get());
    return StartOn(std::move(backends), options);
  }
  Engine& StartOn(std::vector<Backend*> backends, EngineOptions options = {}) {
    options.dispatchers = 3;
    engine_ = std::make_unique<Engine>(options, std::move(backends), &observer_);
    return *engine_;
  }

  // Must be admitted.
  std::shared_ptr<Call> Send(SubmitOptions options = {}, RequestId* id = nullptr) {
    calls_.push_back(std::make_shared<Call>());
    const StatusOr<RequestId> sent = engine_->Submit(MakeRequest(calls_.back(), options));
    EXPECT_TRUE(sent.ok()) << sent.status().ToString();
    if (id != nullptr && sent.ok()) *id = *sent;
    return calls_.back();
  }
  // Must be refused.
  Status Refused(SubmitOptions options = {}) {
    auto call = std::make_shared<Call>();
    const StatusOr<RequestId> sent = engine_->Submit(MakeRequest(call, options));
    EXPECT_FALSE(sent.ok());
    EXPECT_EQ(call->done_runs, 0);
    return sent.status();
  }

  RecordingObserver observer_;
  std::vector<std::unique_ptr<ManualBackend>> backends_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::shared_ptr<Call>> calls_;
};

}  // namespace gemmd::testing
