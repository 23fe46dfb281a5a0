#include "server/metrics/stall_collector.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "tests/support/manual_sampler.h"
#include "tests/unit/metrics_fixture.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSamples = "gemmd_kernel_stall_samples_total";
constexpr const char* kUp = "gemmd_pc_sampling_up";

class StallCollectorTest : public ::testing::Test {
 protected:
  void Start(bool on) {
    stalls_ = std::make_unique<StallSampler>(
        std::vector<Backend*>{&backend_},
        SamplingOptions{.on = on, .period = std::chrono::hours(1)}, nullptr);
    collector_ = std::make_unique<StallCollector>(*stalls_);
  }
  void SampleOnce(const PcSamples& samples) {
    sampler_->AnswerNext(samples);
    ASSERT_TRUE(stalls_->Sample(backend_, [] { return OkStatus(); }).ok());
  }

  const std::shared_ptr<ManualSampler> sampler_ = std::make_shared<ManualSampler>();
  ManualBackend backend_{{.traits = H200Traits(), .sampler = sampler_}};
  std::unique_ptr<StallSampler> stalls_;
  std::unique_ptr<StallCollector> collector_;
};

TEST_F(StallCollectorTest, ExportsTheTotalsByKernelAndReason) {
  Start(false);
  PcSamples samples = SamplesOf(1, {3, 4});
  samples.functions.push_back(SamplesOf(kSumPartsKernel, {0, 5}).functions[0]);
  samples.functions.push_back(SamplesOf(kOtherKernel, {6, 0}).functions[0]);
  samples.dropped = 2;
  SampleOnce(samples);
  const std::string row(kKernelTable[1].name);
  const Families families = collector_->Collect();
  EXPECT_EQ(ValueOf(families, kSamples, {{"kernel", row}, {"reason", "long_scoreboard"}}), 3);
  EXPECT_EQ(ValueOf(families, kSamples, {{"kernel", row}, {"reason", "selected"}}), 4);
  EXPECT_EQ(ValueOf(families, kSamples, {{"kernel", "sum_parts"}, {"reason", "selected"}}), 5);
  EXPECT_EQ(ValueOf(families, kSamples, {{"kernel", "other"}, {"reason", "long_scoreboard"}}), 6);
  EXPECT_EQ(families.back().metric.size(), 4U) << "none of what was not seen";
  EXPECT_EQ(ValueOf(families, "gemmd_pc_sampling_dropped_samples_total"), 2);
  EXPECT_GT(ValueOf(families, "gemmd_pc_sampling_seconds_total"), 0);
  SampleOnce(samples);
  EXPECT_EQ(ValueOf(collector_->Collect(), kSamples, {{"kernel", row}, {"reason", "selected"}}), 8);
}

TEST_F(StallCollectorTest, AServerThatDoesNotSampleHasNoSamplesAndIsNotUp) {
  Start(false);
  const Families families = collector_->Collect();
  EXPECT_EQ(families.size(), 3U);
  EXPECT_EQ(ValueOf(families, kUp), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_pc_sampling_seconds_total"), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_pc_sampling_dropped_samples_total"), 0);
}

TEST_F(StallCollectorTest, IsUpWhileDevicesAreRead) {
  Start(true);
  EXPECT_EQ(ValueOf(collector_->Collect(), kUp), 1);
  sampler_->SetSamples(Unavailable("another profiler"));
  ASSERT_FALSE(stalls_->Sample(backend_, [] { return OkStatus(); }).ok());
  EXPECT_EQ(ValueOf(collector_->Collect(), kUp), 0);
}

TEST(StallCollectorTextTest, AReasonThatIsNoTextIsASafeLabel) {
  const auto sampler = std::make_shared<ManualSampler>(std::vector<std::string>{"a\xff\n\"b"});
  ManualBackend backend({.traits = H200Traits(), .sampler = sampler});
  StallSampler stalls({&backend}, {}, nullptr);
  sampler->AnswerNext(SamplesOf(0, {1}));
  ASSERT_TRUE(stalls.Sample(backend, [] { return OkStatus(); }).ok());
  EXPECT_THAT(prometheus::TextSerializer().Serialize(StallCollector(stalls).Collect()),
              HasSubstr("reason=\"a??\\\"b\"} 1\n"));
}

}  // namespace
}  // namespace gemmd::testing
