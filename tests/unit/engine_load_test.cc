// The engine under load from many threads at once.
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/engine_fixture.h"

namespace gemmd {
namespace {

using testing::Call;
using testing::MakeRequest;
using testing::SubmitOptions;

using EngineLoadTest = testing::EngineFixture;

TEST_F(EngineLoadTest, ThirtyTwoThreadsThatSubmitAndCancelLoseNothing) {
  constexpr int kThreads = 32, kRequests = 150;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  AddBackend({.lanes = 3, .memory_bytes = 2048});
  AddBackend({.lanes = 2, .memory_bytes = 1024});
  Start({.max_queued_requests = 64, .max_queued_bytes = 8000});
  std::vector<std::vector<std::shared_ptr<Call>>> admitted(kThreads);
  std::atomic<int> refused{0}, submitters{kThreads};
  const auto submit = [&](int thread) {
    std::mt19937 random(seed + static_cast<unsigned>(thread));
    const auto below = [&random](int limit) { return static_cast<int>(random() % limit); };
    for (int i = 0; i < kRequests; ++i) {
      SubmitOptions options{.m = below(17), .n = 1 + below(16), .bytes = 1 + below(300)};
      if (below(3) == 0) {
        options.deadline = SteadyClock::now() + std::chrono::microseconds(below(2000));
      }
      auto call = std::make_shared<Call>();
      call->no_memory = below(20) == 0;
      const StatusOr<RequestId> id = engine_->Submit(MakeRequest(call, options));
      if (!id.ok()) {
        ++refused;
        continue;
      }
      admitted[static_cast<size_t>(thread)].push_back(call);
      if (below(3) == 0) engine_->Cancel(*id);
    }
    --submitters;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(submit, i);
  for (const auto& backend : backends_) {
    threads.emplace_back([&, device = backend.get()] {
      while (submitters > 0) {
        if (!device->CompleteNext()) std::this_thread::yield();
      }
      device->CompleteAll();
    });
  }
  for (std::thread& thread : threads) thread.join();

  int count = 0;
  for (const auto& calls : admitted) {
    for (const auto& call : calls) {
      call->Wait();
      ++count;
    }
    calls_.insert(calls_.end(), calls.begin(), calls.end());
  }
  EXPECT_EQ(count + refused, kThreads * kRequests);
  EXPECT_EQ(observer_.admitted, count);
  EXPECT_EQ(static_cast<int>(observer_.rejected().size()), refused);
}

}  // namespace
}  // namespace gemmd
