#include "client/stall_report.h"

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gemmd {
namespace {

StallSample Counted(uint64_t wait_full, uint64_t wait_empty, uint64_t mainloop, uint64_t epilogue,
                    uint64_t k_tiles) {
  return {.measured = true,
          .wait_full = wait_full,
          .wait_empty = wait_empty,
          .mainloop = mainloop,
          .epilogue = epilogue,
          .k_tiles = k_tiles};
}

constexpr int64_t kMostCount = std::numeric_limits<int64_t>::max();

ClientKernelStatistics Launched(const std::string& kernel, int stages, int64_t launches,
                                double seconds) {
  return {kernel, stages, launches, seconds, {}};
}

ClientStatistics StatisticsAt(double uptime_seconds) {
  ClientStatistics statistics;
  statistics.uptime_seconds = uptime_seconds;
  return statistics;
}

// Two seconds in which two of three kernels ran, and two were sampled.
struct TwoSeconds {
  ClientStatistics before = StatisticsAt(40), now = StatisticsAt(42);
  TwoSeconds() {
    before.kernels = {Launched("wgmma_64x64x128", 2, 5, 0.5), Launched("idle", 0, 7, 1),
                      Launched("wgmma_128x128x64", 4, 100, 1)};
    before.kernels[2].stalls = Counted(100, 50, 1000, 10, 80);
    now.kernels = before.kernels;
    now.kernels[0] = Launched("wgmma_64x64x128", 2, 8, 0.75);
    now.kernels[2] = Launched("wgmma_128x128x64", 4, 2600, 2.5);
    now.kernels[2].stalls = Counted(600, 175, 2000, 30, 160);
    now.kernels.push_back(Launched("wgmma_64x64x128", 3, 1, 0.125));
    before.pc_sampling_up = now.pc_sampling_up = true;
    before.pc_sampled_seconds = 39;
    now.pc_sampled_seconds = 40.5;
    before.stall_samples = {{"idle", {{"barrier", 5}}}, {"sum_parts", {{"wait", 3}}}};
    now.stall_samples = {{"sum_parts", {{"wait", 8}}},
                         {"wgmma_128x128x64", {{"selected", 25}, {"long_scoreboard", 175}}},
                         {"idle", {{"barrier", 5}}}};
  }
};

TEST(StallReportTest, AnIntervalHasWhatRanAndWhatWasSampledTheMostFirst) {
  const TwoSeconds two;
  const std::optional<StallInterval> interval = Between(two.before, two.now);
  ASSERT_TRUE(interval);
  EXPECT_EQ(StallText(*interval),
            "2.00 s, up 42 s, sampled 1.50 s\n"
            "KERNEL            S  LAUNCHES/s  TIME %  FULL %  EMPTY %\n"
            "wgmma_128x128x64  4  1250.0      75.0    50.0    12.5\n"
            "wgmma_64x64x128   2  1.5         12.5    -       -\n"
            "wgmma_64x64x128   3  0.5         6.2     -       -\n"
            "KERNEL            SAMPLES  REASONS, % OF SAMPLES\n"
            "wgmma_128x128x64  200      long_scoreboard 87.5, selected 12.5\n"
            "sum_parts         5        wait 100.0\n");
}

TEST(StallReportTest, AnIntervalAsJsonHasItsCounts) {
  const TwoSeconds two;
  const std::string json = ToJson(*Between(two.before, two.now)).text();
  EXPECT_EQ(json.rfind("{\"seconds\": 2, \"uptime_seconds\": 42, \"kernels\": [{\"kernel\": "
                       "\"wgmma_128x128x64\", \"stages\": 4, \"launches\": 2500, "
                       "\"launches_per_second\": 1250, \"kernel_seconds\": 1.5, "
                       "\"share_of_interval\": 0.75, \"stalls_cycles\": {\"wait_full\": 500, "
                       "\"wait_empty\": 125, \"mainloop\": 1000, \"epilogue\": 20, "
                       "\"k_tiles\": 80}}, ",
                       0),
            0U)
      << json;
  const std::string samples =
      "\"pc_sampling_up\": true, \"pc_sampled_seconds\": 1.5, \"stall_samples\": [{\"kernel\": "
      "\"wgmma_128x128x64\", \"reasons\": [{\"reason\": \"long_scoreboard\", \"samples\": 175}, "
      "{\"reason\": \"selected\", \"samples\": 25}]}, {\"kernel\": \"sum_parts\", \"reasons\": "
      "[{\"reason\": \"wait\", \"samples\": 5}]}]}";
  EXPECT_NE(json.find(samples), std::string::npos) << json;
}

TEST(StallReportTest, AnIntervalWithoutALaunchSaysSo) {
  EXPECT_EQ(StallText(*Between(StatisticsAt(3), StatisticsAt(3.5))),
            "500.0 ms, up 4 s: no kernel was launched\n");
}

TEST(StallReportTest, NoTimeHasNoRates) {
  ClientStatistics now = StatisticsAt(3);
  now.kernels = {Launched("simt", 2, 4, 0.5)};
  const StallInterval interval = *Between(StatisticsAt(3), now);
  EXPECT_EQ(StallText(interval),
            "0.00 us, up 3 s\n"
            "KERNEL  S  LAUNCHES/s  TIME %  FULL %  EMPTY %\n"
            "simt    2  -           -       -       -\n");
  EXPECT_NE(ToJson(interval).text().find("\"launches_per_second\": null"), std::string::npos);
}

// The server began at 0 again: nothing can be said of the time in between.
TEST(StallReportTest, AServerThatWasStartedAnewHasNoInterval) {
  const TwoSeconds two;
  ClientStatistics less_uptime = two.now;
  less_uptime.uptime_seconds = 39;
  EXPECT_FALSE(Between(two.before, less_uptime));
  // With a longer uptime than before, as after a long interval.
  ClientStatistics fewer_launches = two.now;
  fewer_launches.kernels[1].launches = 6;
  EXPECT_FALSE(Between(two.before, fewer_launches));
  ClientStatistics no_kernel = two.now;
  no_kernel.kernels.erase(no_kernel.kernels.begin());
  EXPECT_FALSE(Between(two.before, no_kernel));
  ClientStatistics fewer_requests = two.now;
  ClientStatistics some_requests = two.before;
  some_requests.admitted = 1;
  EXPECT_FALSE(Between(some_requests, fewer_requests));
}

// What does not decide whether it was started anew must not yield less than nothing.
TEST(StallReportTest, CountersThatFallCountForNothing) {
  TwoSeconds two;
  two.now.pc_sampled_seconds = 1;
  two.now.stall_samples = {{"sum_parts", {{"wait", 1}}}};
  two.now.kernels[2].kernel_seconds = 0.5;
  two.now.kernels[2].stalls = Counted(1, 1, 1, 1, 1);
  const std::optional<StallInterval> interval = Between(two.before, two.now);
  ASSERT_TRUE(interval);
  EXPECT_EQ(StallText(*interval),
            "2.00 s, up 42 s\n"
            "KERNEL            S  LAUNCHES/s  TIME %  FULL %  EMPTY %\n"
            "wgmma_64x64x128   2  1.5         12.5    -       -\n"
            "wgmma_64x64x128   3  0.5         6.2     -       -\n"
            "wgmma_128x128x64  4  1250.0      0.0     -       -\n");
}

TEST(StallReportTest, CountsOfNoSenseDoNotOverflow) {
  ClientStatistics before = StatisticsAt(1), now = StatisticsAt(2);
  before.kernels = {Launched("", 0, std::numeric_limits<int64_t>::min(), 0)};
  now.kernels = {Launched("", 0, kMostCount, 1e300)};
  now.stall_samples = {{"", {{"", kMostCount}, {"barrier", kMostCount}}}};
  const std::optional<StallInterval> interval = Between(before, now);
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->kernels[0].launches, kMostCount);
  EXPECT_NE(StallText(*interval).find(" 50.0, barrier 50.0\n"), std::string::npos)
      << StallText(*interval);
}

ClientProfile SmallProfile() {
  ClientProfile profile;
  profile.plan.kernel = "wgmma_128x128x64";
  profile.plan.stages = 4;
  profile.plan.split_k = 2;
  profile.plan.source = "model";
  profile.plan.limit = "shared_memory";
  profile.median_seconds = 33.2e-6;
  profile.dropped_samples = 9;
  profile.functions = {
      {"wgmma_128x128x64",
       800,
       {{"long_scoreboard", 500}, {"selected", 294}, {"barrier", 4}, {"wait", 2}},
       {{0x1a00, 0x1a70, 400, "wait for a full stage", {{"long_scoreboard", 390}, {"wait", 10}}},
        {0x40, 0x40, 100, "", {{"selected", 100}}}}},
      {"sum_parts", 200, {{"long_scoreboard", 200}}, {}}};
  return profile;
}

GemmProblem SmallProblem() {
  GemmProblem problem;
  problem.m = problem.n = 256;
  problem.k = 512;
  return WithPackedLayouts(problem);
}

TEST(ProfileReportTest, AProfileIsTheLaunchAndEachFunctionsReasonsAndRanges) {
  EXPECT_EQ(
      ProfileText(SmallProblem(), SmallProfile()),
      "f32 NN 256x256x512 batch 1, chosen by: model\n"
      "KERNEL            S  LIMIT          PARTS  REGS  BLK/SM  WAVES  SMEM   MODEL  MEASURED\n"
      "wgmma_128x128x64  4  shared_memory  2      -     0       -      0 KiB  -      -\n"
      "a launch took 33.2 us, the median while sampled; 1000 samples\n"
      "the hardware dropped 9 samples for want of room\n"
      "\n"
      "wgmma_128x128x64: 800 samples, 80.0 % of all\n"
      "  REASON           SAMPLES  %\n"
      "  long_scoreboard  500      62.5\n"
      "  selected         294      36.8\n"
      "  all others       6        0.8\n"
      "  OFFSETS        %     WHAT                   REASONS, % OF THE RANGE\n"
      "  0x1a00-0x1a70  50.0  wait for a full stage  long_scoreboard 97.5, wait 2.5\n"
      "  0x40-0x40      12.5  -                      selected 100.0\n"
      "\n"
      "sum_parts: 200 samples, 20.0 % of all\n"
      "  REASON           SAMPLES  %\n"
      "  long_scoreboard  200      100.0\n");
}

TEST(ProfileReportTest, WithoutSamplesThereIsOnlyThePlan) {
  ClientProfile profile;
  profile.plan.kernel = "wgmma_128x128x64";
  const std::string text = ProfileText(SmallProblem(), profile);
  const std::string last = "no launch was timed; 0 samples\n";
  EXPECT_EQ(text.substr(text.size() - std::min(text.size(), last.size())), last) << text;
}

TEST(ProfileReportTest, MostRangesAreLeftToJson) {
  ClientProfile profile = SmallProfile();
  ClientFunctionProfile& function = profile.functions[0];
  function.ranges.clear();
  for (uint64_t i = 0; i < 64; ++i) function.ranges.push_back({16 * i, 16 * i, 2, "", {}});
  const std::string text = ProfileText(SmallProblem(), profile);
  EXPECT_NE(text.find("0xb0-0xb0"), std::string::npos) << text;
  EXPECT_EQ(text.find("0xc0-0xc0"), std::string::npos) << text;
  EXPECT_NE(text.find("  52 more ranges: 13.0 %\n"), std::string::npos) << text;
  EXPECT_NE(ProfileJson(SmallProblem(), profile).text().find("\"first_offset\": 1008"),
            std::string::npos);
}

TEST(ProfileReportTest, JsonHasAllOfAProfile) {
  const std::string json = ProfileJson(SmallProblem(), SmallProfile()).text();
  EXPECT_EQ(json.rfind("{\"problem\": \"f32 NN 256x256x512 batch 1\", \"plan\": {\"kernel\": "
                       "\"wgmma_128x128x64\", ",
                       0),
            0U)
      << json;
  const std::string rest =
      "\"median_seconds\": 3.32e-05, \"dropped_samples\": 9, \"functions\": [{\"kernel\": "
      "\"wgmma_128x128x64\", \"samples\": 800, \"reasons\": [{\"reason\": \"long_scoreboard\", "
      "\"samples\": 500}, {\"reason\": \"selected\", \"samples\": 294}, {\"reason\": \"barrier\", "
      "\"samples\": 4}, {\"reason\": \"wait\", \"samples\": 2}], \"ranges\": [{\"first_offset\": "
      "6656, \"last_offset\": 6768, \"samples\": 400, \"note\": \"wait for a full stage\", "
      "\"reasons\": [{\"reason\": \"long_scoreboard\", \"samples\": 390}, {\"reason\": \"wait\", "
      "\"samples\": 10}]}, {\"first_offset\": 64, \"last_offset\": 64, \"samples\": 100, \"note\": "
      "null, \"reasons\": [{\"reason\": \"selected\", \"samples\": 100}]}]}, {\"kernel\": "
      "\"sum_parts\", \"samples\": 200, \"reasons\": [{\"reason\": \"long_scoreboard\", "
      "\"samples\": 200}], \"ranges\": []}]}";
  EXPECT_NE(json.find(rest), std::string::npos) << json;
}

TEST(ProfileReportTest, ANonsensicalProfileIsPrinted) {
  ClientProfile profile;
  profile.functions = {{"", kMostCount, {{"", kMostCount}, {"", kMostCount}}, {}},
                       {"", 0, {{"", 5}}, {{~uint64_t{0}, 0, kMostCount, "", {{"", kMostCount}}}}}};
  const std::string text = ProfileText(SmallProblem(), profile);
  EXPECT_NE(text.find("0xffffffffffffffff-0x0  -  -      100.0\n"), std::string::npos) << text;
}

// With the longest of the kernels' names, the driver's reasons and the server's notes.
TEST(ProfileReportTest, ReportsFitAHundredColumns) {
  const std::string kernel = "tma_pingpong_128x192x64";
  std::vector<ClientStallSamples> reasons;
  for (const char* reason : {"warpgroup_arrive", "long_scoreboard", "short_scoreboard",
                             "math_pipe_throttle", "branch_resolving", "no_instructions"}) {
    reasons.push_back({reason, 1000000000});
  }
  ClientProfile profile = SmallProfile();
  profile.plan.kernel = kernel;
  profile.functions[0] = {
      kernel,
      6000000000,
      reasons,
      {{0x1a000, 0x1a700, 5999000000, "wait for asynchronous copies", reasons}}};
  profile.dropped_samples = 1000000;
  ClientStatistics now = StatisticsAt(1e6);
  now.pc_sampled_seconds = 8000;
  now.kernels = {Launched(kernel, 10, 1000000000, 999)};
  now.kernels[0].stalls = Counted(1000, 1000, 1000, 1000, 1000);
  now.stall_samples = {{kernel, reasons}};
  for (const std::string& text :
       {ProfileText(SmallProblem(), profile), StallText(*Between(StatisticsAt(0), now))}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
    EXPECT_NE(text.find("16.7, long_scoreboard 16.7"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace gemmd
