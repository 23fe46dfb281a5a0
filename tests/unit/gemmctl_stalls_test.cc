// gemmctl profile and stalls as a shell sees them, against a server that answers what a test wants.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/gemmctl_fixture.h"

namespace gemmd {
namespace {

class GemmctlStallsTest : public GemmctlFixture {
 protected:
  GemmctlStallsTest() : GemmctlFixture("gemmctl_stalls_test") {}
};

bool Has(const Gemmctl& run, const std::string& text) {
  return run.output().find(text) != std::string::npos;
}

size_t Times(const Gemmctl& run, const std::string& text) {
  size_t times = 0;
  for (size_t at = run.output().find(text); at != std::string::npos;
       at = run.output().find(text, at + 1)) {
    ++times;
  }
  return times;
}

// A server at `second`, which launches one kernel ten times a second and samples it.
void RunningAt(int second, v1::Statistics* statistics) {
  statistics->mutable_uptime()->set_seconds(second);
  v1::KernelStatistics* const kernel = statistics->add_kernels();
  kernel->set_kernel("wgmma");
  kernel->set_stages(4);
  kernel->set_launches(int64_t{10} * second);
  kernel->mutable_kernel_time()->set_nanos(5000000 * second);
  kernel->mutable_stalls()->set_wait_full(static_cast<uint64_t>(30 * second));
  kernel->mutable_stalls()->set_mainloop(static_cast<uint64_t>(100 * second));
  statistics->set_pc_sampling_up(true);
  v1::KernelStallSamples* const samples = statistics->add_stall_samples();
  samples->set_kernel("wgmma");
  v1::StallSamples* const reason = samples->add_reasons();
  reason->set_reason("barrier");
  reason->set_samples(int64_t{7} * second);
}

grpc::Status Running(int call, v1::Statistics* statistics) {
  RunningAt(call + 1, statistics);
  return grpc::Status::OK;
}

const char kTable[] =
    "KERNEL  S  LAUNCHES/s  TIME %  FULL %  EMPTY %\n"
    "wgmma   4  10.0        0.5     30.0    0.0\n"
    "KERNEL  SAMPLES  REASONS, % OF SAMPLES\n"
    "wgmma   7        barrier 100.0\n";

TEST_F(GemmctlStallsTest, ACountOfOneIsOneInterval) {
  fake_.statistics = Running;
  Gemmctl run(Args({"stalls", "--interval", "10ms", "--count", "1"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(run.output(), std::string("1.00 s, up 2 s\n") + kTable);
  EXPECT_EQ(fake_.calls(), 2);
}

TEST_F(GemmctlStallsTest, ElsewhereThanOnATerminalABlankLinePartsIntervals) {
  fake_.statistics = Running;
  Gemmctl run(Args({"stalls", "--interval", "0.01", "--count", "2"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(run.output(), std::string("1.00 s, up 2 s\n") + kTable + "\n1.00 s, up 3 s\n" + kTable);
}

// A terminal ends lines with \r\n. The block has five lines.
TEST_F(GemmctlStallsTest, OnATerminalAnIntervalTakesThePlaceOfTheLast) {
  fake_.statistics = Running;
  Gemmctl run(Args({"stalls", "--interval", "10ms", "--count", "3"}), /*terminal=*/true);
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(Times(run, "\r\033[5A\033[J"), 2U) << run.output();
  EXPECT_TRUE(Has(run, "barrier 100.0\r\n\r\033[5A\033[J1.00 s, up 3 s\r\n")) << run.output();
}

// 80 columns and 24 rows where the terminal does not say: of the table, what fits.
TEST_F(GemmctlStallsTest, OnATerminalABlockIsCutToWhatCanBeGoneBackTo) {
  fake_.statistics = [](int call, v1::Statistics* statistics) {
    statistics->mutable_uptime()->set_seconds(call + 1);
    for (int i = 0; i < 30; ++i) {
      v1::KernelStatistics* const kernel = statistics->add_kernels();
      kernel->set_kernel(std::string(90, 'k') + std::to_string(i));
      kernel->set_launches(call);
    }
    return grpc::Status::OK;
  };
  Gemmctl run(Args({"stalls", "--interval", "10ms", "--count", "2"}), /*terminal=*/true);
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(Times(run, "\r\033[23A\033[J"), 1U) << run.output();
  EXPECT_TRUE(Has(run, "\r\n" + std::string(80, 'k') + "\r\n")) << run.output();
  EXPECT_FALSE(Has(run, std::string(81, 'k'))) << run.output();
}

TEST_F(GemmctlStallsTest, JsonIsALineForEachInterval) {
  fake_.statistics = Running;
  Gemmctl run(Args({"stalls", "--interval", "10ms", "--count", "2", "--json"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(run.output().rfind("{\"seconds\": 1, \"uptime_seconds\": 2, \"kernels\": [{\"kernel\": "
                               "\"wgmma\", \"stages\": 4, \"launches\": 10, ",
                               0),
            0U)
      << run.output();
  EXPECT_TRUE(Has(run, "}\n{\"seconds\": 1, \"uptime_seconds\": 3, ")) << run.output();
  EXPECT_EQ(Times(run, "\n"), 2U) << run.output();
}

TEST_F(GemmctlStallsTest, AServerThatDoesNotSampleIsSaidToOnce) {
  fake_.statistics = [](int call, v1::Statistics* statistics) {
    statistics->mutable_uptime()->set_seconds(call);
    return grpc::Status::OK;
  };
  Gemmctl run(Args({"stalls", "--interval", "10ms", "--count", "2"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(run.output(),
            "gemmctl: the server does not sample program counters: stall reasons are not known\n"
            "1.00 s, up 1 s: no kernel was launched\n"
            "\n1.00 s, up 2 s: no kernel was launched\n");
  Gemmctl as_json(Args({"stalls", "--interval", "10ms", "--count", "1", "--json"}));
  EXPECT_EQ(as_json.ExitCode(), 0);
  EXPECT_EQ(as_json.output().rfind("{\"seconds\": ", 0), 0U) << as_json.output();
  EXPECT_TRUE(Has(as_json, "\"pc_sampling_up\": false")) << as_json.output();
}

// The interval in which it happened is not shown, nor counted.
TEST_F(GemmctlStallsTest, AServerThatWasStartedAnewIsStartedOverWith) {
  fake_.statistics = [](int call, v1::Statistics* statistics) {
    const int seconds[] = {100, 101, 1, 2};
    RunningAt(seconds[std::min(call, 3)], statistics);
    return grpc::Status::OK;
  };
  Gemmctl run(Args({"stalls", "--interval", "10ms", "--count", "2"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(run.output(), std::string("1.00 s, up 1 min 41 s\n") + kTable +
                              "gemmctl: the server was started anew, and its counters with it\n"
                              "\n1.00 s, up 2 s\n" +
                              kTable);
  EXPECT_EQ(fake_.calls(), 4);
}

TEST_F(GemmctlStallsTest, CtrlCIsTheEndOfACallWithoutACount) {
  fake_.statistics = Running;
  Gemmctl run(Args({"stalls", "--interval", "10ms"}));
  run.ReadUntil("up 3 s");
  run.Signal(SIGINT);
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_FALSE(Has(run, "CANCELLED")) << run.output();
}

TEST_F(GemmctlStallsTest, CtrlCBeforeTheCountIsAnInterruption) {
  fake_.statistics = Running;
  Gemmctl run(Args({"stalls", "--interval", "10ms", "--count", "1000000"}));
  run.ReadUntil("up 3 s");
  run.Signal(SIGTERM);
  EXPECT_EQ(run.ExitCode(), 128 + SIGTERM) << run.output();
  EXPECT_TRUE(Has(run, "gemmctl: CANCELLED: interrupted; ")) << run.output();
  EXPECT_TRUE(Has(run, " of 1000000 intervals had passed\n")) << run.output();
}

// It does not wait for the interval to pass.
TEST_F(GemmctlStallsTest, CtrlCBeforeAnIntervalHasPassedIsAnInterruption) {
  fake_.statistics = [](int, v1::Statistics*) { return grpc::Status::OK; };
  Gemmctl run(Args({"stalls", "--interval", "24h"}));
  run.ReadUntil("does not sample");
  run.Signal(SIGINT);
  EXPECT_EQ(run.ExitCode(), 128 + SIGINT) << run.output();
  EXPECT_TRUE(Has(run, "CANCELLED: interrupted; no interval had passed\n")) << run.output();
}

TEST_F(GemmctlStallsTest, CtrlCGivesUpOnAServerThatDoesNotAnswer) {
  std::atomic<pid_t> client{0};
  fake_.hold = true;
  fake_.statistics = [](int, v1::Statistics*) { return grpc::Status::OK; };
  fake_.on_call = [&] {
    while (client == 0) std::this_thread::yield();
    kill(client, SIGINT);
  };
  Gemmctl run(Args({"--timeout", "1000", "stalls"}));
  client = run.pid();
  EXPECT_EQ(run.ExitCode(), 128 + SIGINT) << run.output();
}

TEST_F(GemmctlStallsTest, AServerThatGoesAwayIsAFailedCall) {
  fake_.statistics = [](int call, v1::Statistics* statistics) {
    if (call == 2) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
    return Running(call, statistics);
  };
  Gemmctl run(Args({"stalls", "--interval", "10ms"}));
  EXPECT_EQ(run.ExitCode(), 3) << run.output();
  EXPECT_EQ(run.output(),
            std::string("1.00 s, up 2 s\n") + kTable + "gemmctl: UNAVAILABLE: gone\n");
}

TEST_F(GemmctlStallsTest, BadOptionsOfStallsAreRefused) {
  ExpectRefused({"stalls", "--interval", "1ms"},
                "--interval: 1ms is not a time such as 500ms, 30s, 5m or 2h from 10ms to 24h");
  ExpectRefused({"stalls", "--interval", "25h"}, "--interval: 25h is not a time such as");
  ExpectRefused({"stalls", "--interval", "often"}, "--interval: often is not a time such as");
  ExpectRefused({"stalls", "--count", "-1"}, "--count: -1 is not an integer from 0 to");
}

TEST_F(GemmctlStallsTest, AProfileIsAskedForAndPrinted) {
  fake_.profile.mutable_plan()->set_kernel("wgmma");
  fake_.profile.mutable_plan()->set_source(v1::PLAN_SOURCE_FORCED);
  fake_.profile.mutable_median()->set_nanos(2500);
  v1::FunctionProfile* const function = fake_.profile.add_functions();
  function->set_kernel("wgmma");
  function->set_samples(10);
  v1::ProgramRange* const range = function->add_ranges();
  range->set_first_offset(0x100);
  range->set_last_offset(0x130);
  range->set_samples(9);
  range->set_note("barrier of the block");
  Gemmctl run(Args({"profile", "64", "32", "16", "--dtype", "f16", "--trans-b", "--batch", "3",
                    "--kernel", "wgmma", "--stages", "4", "--split-k", "2", "--duration", "20ms"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_TRUE(Has(run, "f16 NT 64x32x16 batch 3, chosen by: forced\n")) << run.output();
  EXPECT_TRUE(Has(run, "a launch took 2.50 us, ")) << run.output();
  EXPECT_TRUE(Has(run, "  0x100-0x130  90.0  barrier of the block\n")) << run.output();
  const v1::ProfileRequest request = fake_.profile_request();
  EXPECT_EQ(request.problem().m(), 64);
  EXPECT_EQ(request.problem().n(), 32);
  EXPECT_EQ(request.problem().k(), 16);
  EXPECT_EQ(request.problem().batch(), 3);
  EXPECT_EQ(request.problem().type_a(), v1::DATA_TYPE_F16);
  EXPECT_EQ(request.problem().trans_b(), v1::TRANSPOSE_TRANS);
  EXPECT_EQ(request.plan().kernel(), "wgmma");
  EXPECT_EQ(request.plan().stages(), 4);
  EXPECT_EQ(request.plan().split_k(), 2);
  EXPECT_EQ(request.duration().nanos(), 20000000);
}

TEST_F(GemmctlStallsTest, AProfileAsJsonIsOneObject) {
  Gemmctl run(Args({"profile", "1", "2", "3", "--json"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_EQ(run.output().rfind("{\"problem\": \"bf16 NN 1x2x3 batch 1\", \"plan\": {", 0), 0U)
      << run.output();
  EXPECT_EQ(Times(run, "\n"), 1U) << run.output();
  EXPECT_FALSE(fake_.profile_request().has_duration());
}

TEST_F(GemmctlStallsTest, CtrlCEndsAProfileAtBothEnds) {
  std::atomic<pid_t> client{0};
  fake_.hold = true;
  fake_.on_call = [&] {
    while (client == 0) std::this_thread::yield();
    kill(client, SIGINT);
  };
  Gemmctl run(Args({"profile", "1", "2", "3"}));
  client = run.pid();
  EXPECT_EQ(run.ExitCode(), 128 + SIGINT) << run.output();
  EXPECT_EQ(run.output(), "gemmctl: CANCELLED: interrupted; there is no profile\n");
  server_.WaitUntilIdle();
  EXPECT_EQ(fake_.cancelled(), 1);
}

TEST_F(GemmctlStallsTest, AServerThatDoesNotSampleRefusesAProfile) {
  fake_.ends_with = {grpc::StatusCode::FAILED_PRECONDITION, "sampling is off"};
  Gemmctl run(Args({"profile", "1", "2", "3", "--json"}));
  EXPECT_EQ(run.ExitCode(), 3) << run.output();
  EXPECT_TRUE(Has(run, "gemmctl: FAILED_PRECONDITION: sampling is off\n")) << run.output();
  EXPECT_TRUE(Has(run, "{\"error\": {\"code\": \"FAILED_PRECONDITION\", ")) << run.output();
}

TEST_F(GemmctlStallsTest, BadProductsAreNotProfiled) {
  ExpectRefused({"profile", "1", "2"}, "K is required");
  ExpectRefused({"profile", "1", "2", "x"}, "K: x is not an integer from");
  ExpectRefused({"profile", "--", "-1", "2", "3"}, "problem.m=-1 is below 0");
  ExpectRefused({"profile", "1", "2", "3", "--dtype", "f17"}, "--dtype: f17 is not one of");
  ExpectRefused({"profile", "1", "2", "3", "--duration", "9ms"},
                "--duration: 9ms is not a time such as 500ms, 30s, 5m or 2h from 10ms to 60s");
  ExpectRefused({"profile", "1", "2", "3", "--duration", "61"}, "--duration: 61 is not a time");
  ExpectRefused({"profile", "1", "2", "3", "--kernel", "\xff"}, "--kernel: the text is not UTF-8");
}

TEST_F(GemmctlStallsTest, StatsHaveTheStallSamplesAsJson) {
  fake_.statistics = Running;
  Gemmctl run(Args({"stats", "--json"}));
  EXPECT_EQ(run.ExitCode(), 0) << run.output();
  EXPECT_TRUE(Has(run,
                  "\"pc_sampling_up\": true, \"pc_sampled_seconds\": 0, \"stall_samples\": "
                  "[{\"kernel\": \"wgmma\", \"reasons\": [{\"reason\": \"barrier\", "
                  "\"samples\": 7}]}]}\n"))
      << run.output();
}

}  // namespace
}  // namespace gemmd
