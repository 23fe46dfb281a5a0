#include <atomic>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "server/metrics/metric_text.h"
#include "server/metrics/metrics_server.h"
#include "tests/support/http_get.h"
#include "tests/unit/metrics_fixture.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST_F(MetricsTest, CountEveryEndOnce) {
  Start();
  RunOneOfEachKind();
  const Families families = Scrape();
  EXPECT_EQ(ValueOf(families, "gemmd_rejected_total", {{"reason", "draining"}}), 1);
  EXPECT_EQ(ValueOf(families, "gemmd_request_duration_seconds"), 5);
  EXPECT_EQ(ValueOf(families, "gemmd_request_bytes"), 5);
  EXPECT_EQ(ValueOf(families, "gemmd_kernel_flops_total", {{"kernel", "openblas"}}), 2 * 8 * 8 * 8);
  const Labels openblas = {{"kernel", "openblas"}, {"stages", "0"}};
  EXPECT_EQ(ValueOf(families, "gemmd_kernel_launches_total", openblas), 2);
  EXPECT_EQ(ValueOf(families, "gemmd_kernel_duration_seconds", openblas), 1);
  EXPECT_EQ(
      ValueOf(families, "gemmd_plan_selected_total",
              {{"kernel", "openblas"}, {"stages", "0"}, {"source", "model"}, {"limit", "none"}}),
      2);
  EXPECT_EQ(ValueOf(families, "gemmd_plan_selected_total",
                    {{"kernel", "none"}, {"stages", "0"}, {"source", "model"}, {"limit", "none"}}),
            1);
  EXPECT_EQ(ValueOf(families, "gemmd_request_phase_seconds", {{"phase", "kernel"}}), 2);
  EXPECT_EQ(ValueOf(families, "gemmd_request_phase_seconds", {{"phase", "decode"}}), 5);
  EXPECT_EQ(ValueOf(families, "gemmd_request_phase_seconds", {{"phase", "h2d"}}), 0);
}

TEST_F(MetricsTest, ShowCyclesOfTheKernelAndStageCountThatRan) {
  GemmRequest request;
  request.problem.type_a = DType::kBF16;
  GemmResult result;
  result.plan = {.row = 1, .stages = 4, .limit = StageLimit::kResidency};
  result.stalls = {.measured = true,
                   .wait_full = 10,
                   .wait_empty = 20,
                   .mainloop = 300,
                   .epilogue = 40,
                   .k_tiles = 5};
  observer_.Completed(request, result);
  result.stalls.measured = false;
  observer_.Completed(request, result);
  const Families families = registry_->Collect();
  const auto labels = [](const char* name, const char* value) {
    return Labels{{"kernel", "cp_async_128x128x64"}, {"stages", "4"}, {name, value}};
  };
  EXPECT_EQ(ValueOf(families, "gemmd_kernel_stall_cycles_total", labels("wait", "full")), 10);
  EXPECT_EQ(ValueOf(families, "gemmd_kernel_stall_cycles_total", labels("wait", "empty")), 20);
  EXPECT_EQ(ValueOf(families, "gemmd_kernel_cycles_total", labels("part", "mainloop")), 300);
  EXPECT_EQ(ValueOf(families, "gemmd_kernel_cycles_total", labels("part", "epilogue")), 40);
}

TEST_F(MetricsTest, CountADroppedStallRecordAndNothingOfIt) {
  GemmRequest request;
  GemmResult result;
  result.plan = {.row = 1, .stages = 4, .limit = StageLimit::kResidency};
  observer_.Completed(request, result);  // without a probe
  const char* const name = "gemmd_kernel_stall_records_dropped_total";
  EXPECT_EQ(ValueOf(registry_->Collect(), name), 0);
  result.stalls.dropped = true;
  observer_.Completed(request, result);
  EXPECT_EQ(ValueOf(registry_->Collect(), name), 1);
  for (const auto& family : registry_->Collect()) {
    if (family.name.find("cycles_total") == std::string::npos) continue;
    for (const auto& metric : family.metric) EXPECT_EQ(metric.counter.value, 0) << family.name;
  }
}

TEST_F(MetricsTest, CountEveryPlanOfThePlanner) {
  const int plans = RunEveryPlan();
  double counted = 0;
  for (const auto& family : registry_->Collect()) {
    if (family.name != "gemmd_plan_selected_total") continue;
    for (const auto& metric : family.metric) counted += metric.counter.value;
  }
  EXPECT_GT(plans, 400);
  EXPECT_EQ(counted, plans);
}

TEST_F(MetricsTest, LoseNoFirstLaunchOfManyAtOnce) {
  constexpr int kThreads = 8;
  GemmResult result;
  result.plan = {.row = 1, .stages = 4, .limit = StageLimit::kResidency};
  result.stalls = {.measured = true, .wait_full = 10, .mainloop = 300, .k_tiles = 5};
  std::atomic<int> waiting{kThreads};
  std::vector<std::thread> lanes;
  for (int i = 0; i < kThreads; ++i) {
    lanes.emplace_back([&] {
      waiting.fetch_sub(1);
      while (waiting.load() > 0) std::this_thread::yield();
      observer_.Completed({}, result);
    });
  }
  for (std::thread& lane : lanes) lane.join();
  const Families families = registry_->Collect();
  const Labels launch = {{"kernel", "cp_async_128x128x64"}, {"stages", "4"}};
  const auto with = [&](Labels more) {
    more.insert(launch.begin(), launch.end());
    return more;
  };
  EXPECT_EQ(ValueOf(families, "gemmd_kernel_launches_total", launch), kThreads);
  EXPECT_EQ(ValueOf(families, "gemmd_kernel_stall_cycles_total", with({{"wait", "full"}})),
            10 * kThreads);
  EXPECT_EQ(ValueOf(families, "gemmd_plan_selected_total",
                    with({{"source", "model"}, {"limit", "residency"}})),
            kThreads);
}

TEST_F(MetricsTest, CountCallsByMethodAndCode) {
  const int gemm = CallMethodOf("gemmd.v1.GemmService/Gemm");
  const int tune = CallMethodOf("gemmd.v1.ServerService/Tune");
  calls_.CallStarted(gemm);
  calls_.CallStarted(gemm);
  calls_.CallEnded(gemm, StatusCode::kInvalidArgument);
  calls_.CallStarted(tune);
  calls_.CallEnded(tune, StatusCode::kUnimplemented);
  calls_.CallStarted(CallMethodOf("gemmd.v1.GemmService/NoSuchMethod"));
  const Families families = registry_->Collect();
  const std::string started = "gemmd_requests_started_total", ended = "gemmd_requests_total";
  EXPECT_EQ(ValueOf(families, started, {{"method", "Gemm"}}), 2);
  EXPECT_EQ(ValueOf(families, started, {{"method", "Tune"}}), 1);
  EXPECT_EQ(ValueOf(families, started, {{"method", "other"}}), 1);
  EXPECT_EQ(ValueOf(families, ended, {{"method", "Gemm"}, {"code", "INVALID_ARGUMENT"}}), 1);
  EXPECT_EQ(ValueOf(families, ended, {{"method", "Gemm"}, {"code", "OK"}}), 0);
  EXPECT_EQ(ValueOf(families, ended, {{"method", "Tune"}, {"code", "UNIMPLEMENTED"}}), 1);
}

TEST_F(MetricsTest, CountTuningAndSayWhileItMeasures) {
  tuning_.MeasuringChanged(true);
  EXPECT_EQ(ValueOf(registry_->Collect(), "gemmd_tuning_running"), 1);
  tuning_.Measured(true, std::chrono::milliseconds(1500));
  tuning_.Measured(false, std::chrono::milliseconds(250));
  tuning_.MeasuringChanged(false);
  tuning_.RunEnded(TuningResult::kDrained);
  tuning_.Saved(false);
  const Families families = registry_->Collect();
  EXPECT_EQ(ValueOf(families, "gemmd_tuning_running"), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_tuning_problems_total"), 1);
  EXPECT_EQ(ValueOf(families, "gemmd_tuning_seconds_total"), 1.75);
  for (const TuningResult result : kTuningResults) {
    EXPECT_EQ(ValueOf(families, "gemmd_tuning_runs_total", {{"result", std::string(Name(result))}}),
              result == TuningResult::kDrained ? 1 : 0);
  }
  EXPECT_EQ(ValueOf(families, "gemmd_tuning_saves_total", {{"result", "failed"}}), 1);
  EXPECT_EQ(ValueOf(families, "gemmd_tuning_saves_total", {{"result", "ok"}}), 0);
}

TEST_F(MetricsTest, CountEveryCodeAsItselfWhateverTheMethod) {
  for (int method = 0; method < kCallMethodCount; ++method) {
    for (int code = 0; code <= 17; ++code) {
      calls_.CallEnded(method, static_cast<StatusCode>(code));
    }
  }
  const Families families = registry_->Collect();
  for (const CallMethod& method : kCallMethods) {
    for (int code = 0; code <= 16; ++code) {
      const std::string name(StatusCodeName(static_cast<StatusCode>(code)));
      // There is no code 17: what no code names is UNKNOWN.
      EXPECT_EQ(ValueOf(families, "gemmd_requests_total",
                        {{"method", std::string(method.name)}, {"code", name}}),
                name == "UNKNOWN" ? 2 : 1)
          << method.name << " " << name;
    }
  }
}

TEST_F(MetricsTest, CountCancelledProductsByWhatTheyWereDoing) {
  for (const CancelPhase phase : kCancelPhases) calls_.ProductCancelled(phase);
  calls_.ProductCancelled(CancelPhase::kRun);
  const Families families = registry_->Collect();
  EXPECT_EQ(ValueOf(families, "gemmd_cancelled_total", {{"phase", "queue"}}), 1);
  EXPECT_EQ(ValueOf(families, "gemmd_cancelled_total", {{"phase", "run"}}), 2);
  EXPECT_EQ(ValueOf(families, "gemmd_cancelled_total", {{"phase", "reply"}}), 1);
}

TEST_F(MetricsTest, GaugesShowTheEngineAsItIsAndReturnToZero) {
  Start();
  Send();
  Send();
  backend_->WaitForStarted(2);
  Send({.bytes = 12345});
  ASSERT_TRUE(replies_.TryTake(77));
  Families families = Scrape();
  EXPECT_EQ(ValueOf(families, "gemmd_queue_depth"), 1);
  EXPECT_EQ(ValueOf(families, "gemmd_queue_bytes"), 12345);
  EXPECT_EQ(ValueOf(families, "gemmd_inflight_requests"), 2);
  EXPECT_EQ(ValueOf(families, "gemmd_lanes", {{"device", "0"}, {"state", "busy"}}), 2);
  EXPECT_EQ(ValueOf(families, "gemmd_lanes", {{"device", "0"}, {"state", "idle"}}), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_device_memory_bytes", {{"device", "0"}, {"state", "used"}}),
            2 * 8 * 8 * 4);
  EXPECT_EQ(ValueOf(families, "gemmd_health"), 1);
  EXPECT_EQ(ValueOf(families, "gemmd_draining"), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_reply_bytes"), 77);
  replies_.GiveBack(77);
  backend_->CompleteAll();
  engine_->StartDrain();
  engine_->WaitIdle(SteadyClock::time_point::max());
  EXPECT_EQ(ValueOf(Scrape(), "gemmd_health"), 0);  // as the health service answers by then
  backend_->SetHealthy(false);
  families = Scrape();
  EXPECT_EQ(ValueOf(families, "gemmd_reply_bytes"), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_queue_depth"), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_queue_bytes"), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_inflight_requests"), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_lanes", {{"device", "0"}, {"state", "busy"}}), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_health"), 0);
  EXPECT_EQ(ValueOf(families, "gemmd_draining"), 1);
  EXPECT_EQ(ValueOf(families, "gemmd_build_info", {{"version", "1.2.3"}, {"revision", "abc"}}), 1);
}

TEST_F(MetricsTest, GaugesOfLimitsShowWhatAdmissionGoesBy) {
  Start(CpuTraits(), {.max_queued_requests = 7, .max_queued_bytes = int64_t{5} << 30});
  const Families families = Scrape();
  EXPECT_EQ(ValueOf(families, "gemmd_queue_limit_requests"), 7);
  EXPECT_EQ(ValueOf(families, "gemmd_queue_limit_bytes"), 5368709120);
  EXPECT_EQ(ValueOf(families, "gemmd_reply_limit_bytes"), 100);
}

TEST_F(MetricsTest, ADeviceNameCannotBreakTheExposition) {
  DeviceTraits traits = CpuTraits();
  traits.name = "a \"b\" \\ c\nd } 1\r\xff\xfe\x01";
  traits.uuid = std::string("u\0v", 3);
  Start(traits);
  RunOneOfEachKind();
  const std::string text = prometheus::TextSerializer().Serialize(Scrape());
  EXPECT_THAT(text, HasSubstr(R"(name="a \"b\" \\ c?d } 1????")"));
  EXPECT_THAT(text, HasSubstr(R"(uuid="u?v")"));
  const std::string label = R"re([a-z_]+="([^"\]|\\[\\"n])*")re";
  const std::string sample = "[a-z_]+([{]" + label + "(," + label + ")*[}])? [-+.0-9a-zA-Z]+";
  const std::string comment = "# (HELP|TYPE) gemmd_[a-z0-9_]+ .*";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, MatchesRegex(line.front() == '#' ? comment : sample));
  }
}

TEST(LabelTextTest, KeepsPrintableAsciiAlone) {
  EXPECT_EQ(LabelText("NVIDIA H200 (x\"\\)"), "NVIDIA H200 (x\"\\)");
  EXPECT_EQ(LabelText("\n\x7f\xc3\xa9"), "????");
}

// --- Over HTTP ---

TEST_F(MetricsTest, AreScrapedOverHttpFromEverySource) {
  Start();
  const auto server = MetricsServer::Start("127.0.0.1:0", {registry_, collector_});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  ASSERT_GT((*server)->port(), 0);
  EXPECT_EQ((*server)->address(), "127.0.0.1:" + std::to_string((*server)->port()));
  const std::string answer = HttpGet((*server)->port(), "/metrics");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("gemmd_requests_total{code=\"OK\",method=\"Gemm\"} 0"));
  EXPECT_THAT(answer, HasSubstr("gemmd_queue_depth 0"));
}

TEST(MetricsServerTest, ConnectionsThatSayNothingDoNotHoldUpAScrape) {
  const auto server =
      MetricsServer::Start("127.0.0.1:0", {std::make_shared<prometheus::Registry>()});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>((*server)->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<int> silent;
  for (int i = 0; i < 16; ++i) {
    silent.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(silent.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
  }
  const auto start = SteadyClock::now();
  EXPECT_THAT(HttpGet((*server)->port(), "/metrics"), HasSubstr("200 OK"));
  EXPECT_LT(SteadyClock::now() - start, std::chrono::seconds(15));
  for (const int fd : silent) ::close(fd);
}

TEST(MetricsServerTest, AnAddressInUseIsAnErrorThatNamesIt) {
  const auto first = MetricsServer::Start("127.0.0.1:0", {});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const std::string address = (*first)->address();
  const auto second = MetricsServer::Start(address, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(address));
}

TEST(MetricsServerTest, WhatIsNoHostAndPortIsRefused) {
  for (const char* address :
       {"", "127.0.0.1", ":9464", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:80x",
        "127.0.0.1:0,0.0.0.0:0", "::1:9464", "[::1]:9464", "127.0.0.1:9464s", "a b:1"}) {
    const auto server = MetricsServer::Start(address, {});
    ASSERT_FALSE(server.ok()) << address;
    EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument) << address;
  }
}

TEST(MetricsServerTest, AnUnknownHostIsAnErrorThatNamesIt) {
  const auto server = MetricsServer::Start("no-such-host.invalid:0", {});
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.status().message(), HasSubstr("no-such-host.invalid:0"));
}

}  // namespace
}  // namespace gemmd::testing
