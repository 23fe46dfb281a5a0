#include "server/sampling/stall_sampler.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/manual_backend.h"
#include "tests/support/manual_sampler.h"

namespace gemmd::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using Clock = std::chrono::steady_clock;

// Only a pause that ends early ends within a test.
constexpr std::chrono::hours kForever{1};
constexpr milliseconds kShort{1};

std::shared_ptr<ManualBackend> MakeBackend(std::shared_ptr<PcSampler> sampler, int ordinal) {
  ManualBackendOptions options;
  options.traits = H200Traits();
  options.traits.ordinal = ordinal;
  options.sampler = std::move(sampler);
  options.sampling_status = FailedPrecondition("no privilege");
  return std::make_shared<ManualBackend>(std::move(options));
}

// One device, and others where a test wants them.
class StallSamplerTest : public ::testing::Test {
 protected:
  void Start(bool on, milliseconds period, std::vector<Backend*> backends = {}) {
    if (backends.empty()) backends = {backend_.get()};
    stalls_ = std::make_unique<StallSampler>(
        std::move(backends), SamplingOptions{.on = on, .period = period},
        [this](const Backend& backend, const Status& status) {
          MutexLock lock(mu_);
          failures_.emplace_back(backend.traits().ordinal, status.message());
        });
  }
  std::vector<std::pair<int, std::string>> failures() {
    MutexLock lock(mu_);
    return failures_;
  }
  int64_t Total(int kernel, const std::string& reason) const {
    const StallTotals totals = stalls_->totals();
    const auto found = totals.samples.find({kernel, reason});
    return found == totals.samples.end() ? 0 : found->second;
  }
  // What is said from now on has been read and counted.
  void WaitForNews() { sampler_->WaitForReads(sampler_->reads() + 3); }
  static Status Nothing() { return OkStatus(); }

  const std::shared_ptr<ManualSampler> sampler_ = std::make_shared<ManualSampler>();
  const std::shared_ptr<ManualSampler> other_ = std::make_shared<ManualSampler>();
  const std::shared_ptr<ManualBackend> backend_ = MakeBackend(sampler_, 0);
  const std::shared_ptr<ManualBackend> second_ = MakeBackend(other_, 1);
  const std::shared_ptr<ManualBackend> bare_ = MakeBackend(nullptr, 2);

  Mutex mu_;
  std::vector<std::pair<int, std::string>> failures_ GUARDED_BY(mu_);  // by device

  std::unique_ptr<StallSampler> stalls_;
};

// --- The thread ---

TEST_F(StallSamplerTest, ReadsInEveryPeriodAndAddsUp) {
  sampler_->SetSamples(SamplesOf(2, {5, 0}));
  const Clock::time_point start = Clock::now();
  Start(true, kShort);
  sampler_->WaitForReads(4);
  EXPECT_GE(Clock::now() - start, 4 * kShort) << "each after a period";
  const StallTotals totals = stalls_->totals();  // of three readings, or of the fourth too
  EXPECT_TRUE(totals.up);
  EXPECT_GE(totals.sampled, 3 * kShort) << "the time between them is sampled";
  EXPECT_GE(Total(2, "long_scoreboard"), 15);
  EXPECT_EQ(Total(2, "long_scoreboard") % 5, 0);
  EXPECT_EQ(Total(2, "selected"), 0);
}

TEST_F(StallSamplerTest, EveryDeviceIsReadAndItsTimeCounts) {
  sampler_->SetSamples(SamplesOf(0, {1, 0}));
  other_->SetSamples(SamplesOf(1, {0, 1}));
  Start(true, kShort, {backend_.get(), second_.get()});
  other_->WaitForReads(3);
  EXPECT_GE(Total(0, "long_scoreboard"), 2);
  EXPECT_GE(Total(1, "selected"), 2);
  EXPECT_GE(stalls_->totals().sampled, 4 * kShort) << "over all devices";
}

TEST_F(StallSamplerTest, OffReadsOnlyWhatIsAskedFor) {
  Start(false, milliseconds(0), {backend_.get(), bare_.get()});
  ASSERT_TRUE(stalls_->Sample(*backend_, Nothing).ok());
  EXPECT_FALSE(stalls_->totals().up);
  stalls_.reset();
  EXPECT_EQ(sampler_->reads(), 2) << "Sample()'s own";
  EXPECT_THAT(failures(), IsEmpty()) << "nobody asked for the second device's samples";
}

TEST_F(StallSamplerTest, TheEndDoesNotWaitForAPause) {
  Start(true, kForever);
  EXPECT_TRUE(stalls_->totals().up);
  stalls_.reset();
  EXPECT_EQ(sampler_->reads(), 0);
}

// --- What is in the way ---

TEST_F(StallSamplerTest, AFailureIsToldOnceUntilADeviceIsReadAgain) {
  Start(true, kShort);
  sampler_->WaitForReads(2);
  EXPECT_TRUE(stalls_->totals().up);
  sampler_->SetSamples(Unavailable("another profiler"));
  WaitForNews();
  EXPECT_FALSE(stalls_->totals().up);
  EXPECT_THAT(failures(), ElementsAre(Pair(0, "another profiler")));
  sampler_->SetSamples(PcSamples{});
  WaitForNews();
  EXPECT_TRUE(stalls_->totals().up);
  sampler_->SetSamples(ResourceExhausted("too many samples"));
  WaitForNews();
  EXPECT_FALSE(stalls_->totals().up);
  EXPECT_THAT(failures(), ElementsAre(Pair(0, "another profiler"), Pair(0, "too many samples")));
}

TEST_F(StallSamplerTest, TimeThatCannotBeReadCountsForNothing) {
  sampler_->SetSamples(ResourceExhausted("too many samples"));
  Start(true, kShort);
  sampler_->WaitForReads(3);
  const StallTotals totals = stalls_->totals();
  EXPECT_EQ(totals.sampled, Nanoseconds(0));
  EXPECT_THAT(totals.samples, IsEmpty());
}

TEST_F(StallSamplerTest, SampledTimeBeginsAfterAFailure) {
  Start(false, kShort);
  const Clock::time_point start = Clock::now();
  while (Clock::now() < start + 2 * kShort) std::this_thread::yield();
  sampler_->AnswerNext(ResourceExhausted("too many samples"));
  ASSERT_FALSE(stalls_->Sample(*backend_, Nothing).ok());
  ASSERT_TRUE(stalls_->Sample(*backend_, Nothing).ok());
  EXPECT_GT(stalls_->totals().sampled, Nanoseconds(0));
  EXPECT_LT(stalls_->totals().sampled, Clock::now() - start - 2 * kShort);
}

TEST_F(StallSamplerTest, ADeviceWithoutASamplerIsToldOnceAndTheOthersAreSampled) {
  sampler_->SetSamples(SamplesOf(0, {1, 0}));
  Start(true, kShort, {backend_.get(), bare_.get()});
  sampler_->WaitForReads(3);
  EXPECT_THAT(failures(), ElementsAre(Pair(2, "no privilege")));
  EXPECT_FALSE(stalls_->totals().up) << "not every device is";
  EXPECT_GE(Total(0, "long_scoreboard"), 2);
}

TEST_F(StallSamplerTest, ADeviceThatFailsKeepsNoOtherFromBeingRead) {
  other_->SetSamples(SamplesOf(1, {0, 1}));
  sampler_->SetSamples(Unavailable("another profiler"));
  Start(true, kShort, {backend_.get(), second_.get()});
  other_->WaitForReads(3);
  EXPECT_GE(Total(1, "selected"), 2);
  EXPECT_FALSE(stalls_->totals().up);
  EXPECT_THAT(failures(), ElementsAre(Pair(0, "another profiler")));
}

TEST_F(StallSamplerTest, NothingIsUpWhereNoDeviceHasASampler) {
  Start(true, kForever, {bare_.get()});
  EXPECT_FALSE(stalls_->totals().up);
  EXPECT_EQ(stalls_->Sample(*bare_, Nothing).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failures(), ElementsAre(Pair(2, "no privilege")));
}

// --- Sample() ---

TEST_F(StallSamplerTest, WhatRanBeforeTheWorkIsTheTotalsAlone) {
  Start(false, kShort);
  sampler_->AnswerNext(SamplesOf(0, {1, 0}));
  const StatusOr<PcSamples> own = stalls_->Sample(*backend_, [&] {
    EXPECT_EQ(sampler_->reads(), 1);
    sampler_->AnswerNext(SamplesOf(3, {0, 7}));
    return OkStatus();
  });
  ASSERT_TRUE(own.ok()) << own.status().ToString();
  ASSERT_EQ(own->functions.size(), 1U);
  EXPECT_EQ(own->functions[0].kernel, 3);
  EXPECT_THAT(own->functions[0].ranges[0].by_reason, ElementsAre(0, 7));
  EXPECT_EQ(Total(0, "long_scoreboard"), 1);
  EXPECT_EQ(Total(3, "selected"), 7) << "once, in the totals too";
}

TEST_F(StallSamplerTest, ASamplersDelayPassesBeforeEachOfItsReads) {
  Start(false, kShort);
  sampler_->SetDelay(3 * kShort);
  const Clock::time_point start = Clock::now();
  Clock::time_point worked{};
  ASSERT_TRUE(stalls_
                  ->Sample(*backend_,
                           [&] {
                             worked = Clock::now();
                             return OkStatus();
                           })
                  .ok());
  EXPECT_GE(worked - start, 3 * kShort);
  EXPECT_GE(Clock::now() - worked, 3 * kShort);
}

TEST_F(StallSamplerTest, NoDeviceIsReadDuringASampleOfOne) {
  Start(true, kShort, {backend_.get(), second_.get()});
  other_->WaitForReads(2);
  ASSERT_TRUE(stalls_
                  ->Sample(*second_,
                           [&] {
                             const int first = sampler_->reads(), second = other_->reads();
                             const Clock::time_point end = Clock::now() + 10 * kShort;
                             while (Clock::now() < end) std::this_thread::yield();
                             EXPECT_EQ(sampler_->reads(), first);
                             EXPECT_EQ(other_->reads(), second);
                             return OkStatus();
                           })
                  .ok());
  WaitForNews();  // the thread goes on
}

// The sampler aborts where two read at once.
TEST_F(StallSamplerTest, SamplesOfManyCallersComeOneAfterTheOtherWhateverTheThreadDoes) {
  constexpr int kCallers = 4, kEach = 50;
  for (const bool on : {false, true}) {
    Start(on, milliseconds(0));
    std::atomic<int> inside{0}, most{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < kCallers; ++i) {
      callers.emplace_back([&] {
        for (int j = 0; j < kEach; ++j) {
          const StatusOr<PcSamples> own = stalls_->Sample(*backend_, [&] {
            most = std::max<int>(most, ++inside);
            std::this_thread::yield();
            --inside;
            return OkStatus();
          });
          EXPECT_TRUE(own.ok());
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(most, 1);
  }
}

TEST_F(StallSamplerTest, SamplesOfWorkThatFailedAreTheTotals) {
  Start(false, kShort);
  const StatusOr<PcSamples> none = stalls_->Sample(*backend_, [&] {
    sampler_->AnswerNext(SamplesOf(0, {1, 0}));
    return Cancelled("the work was");
  });
  EXPECT_EQ(none.status().message(), "the work was");
  EXPECT_EQ(Total(0, "long_scoreboard"), 1);
}

TEST_F(StallSamplerTest, TheWorksErrorGoesBeforeTheSamplers) {
  Start(false, kShort);
  sampler_->AnswerNext(PcSamples{});
  sampler_->AnswerNext(Internal("no device"));
  EXPECT_EQ(stalls_->Sample(*backend_, [] { return Unavailable("lost"); }).status().message(),
            "lost");
  EXPECT_THAT(failures(), ElementsAre(Pair(0, "no device")));
}

TEST_F(StallSamplerTest, WorkIsNotDoneWhereTheDeviceCannotBeRead) {
  Start(false, kShort);
  sampler_->SetSamples(Unavailable("another profiler"));
  const StatusOr<PcSamples> none = stalls_->Sample(*backend_, [] {
    ADD_FAILURE() << "it began";
    return OkStatus();
  });
  EXPECT_EQ(none.status().message(), "another profiler");
  EXPECT_THAT(failures(), ElementsAre(Pair(0, "another profiler")));
  sampler_->SetSamples(PcSamples{});
  EXPECT_TRUE(stalls_->Sample(*backend_, Nothing).ok()) << "the place is free again";
}

TEST_F(StallSamplerTest, SamplesThatCannotBeReadAreTheCallersErrorToo) {
  Start(false, kShort);
  sampler_->AnswerNext(PcSamples{});
  sampler_->AnswerNext(ResourceExhausted("too many samples"));
  EXPECT_EQ(stalls_->Sample(*backend_, Nothing).status().message(), "too many samples");
  EXPECT_TRUE(stalls_->Sample(*backend_, Nothing).ok());
}

TEST_F(StallSamplerTest, TotalsAreByKernelAndReasonOverFunctionsAndRanges) {
  PcSamples samples = SamplesOf(1, {3, 0});
  samples.functions[0].ranges.push_back({.range = {}, .by_reason = {4, 0}});
  samples.functions.push_back(SamplesOf(1, {5, 1}).functions[0]);  // of another type
  samples.functions.push_back(SamplesOf(kOtherKernel, {0, 2}).functions[0]);
  samples.functions.push_back(SamplesOf(kSumPartsKernel, {0, 0}).functions[0]);
  samples.functions.push_back({.kernel = 0, .ranges = {}});
  samples.dropped = 6;
  Start(false, kShort);
  for (int times = 1; times <= 2; ++times) {
    sampler_->AnswerNext(samples);
    ASSERT_TRUE(stalls_->Sample(*backend_, Nothing).ok());
    const StallTotals totals = stalls_->totals();
    EXPECT_EQ(totals.dropped, 6 * times);
    EXPECT_THAT(totals.samples, ElementsAre(Pair(Pair(1, "long_scoreboard"), 12 * times),
                                            Pair(Pair(1, "selected"), times),
                                            Pair(Pair(kOtherKernel, "selected"), 2 * times)));
  }
}

}  // namespace
}  // namespace gemmd::testing
