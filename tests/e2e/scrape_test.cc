// What Prometheus reads from a server that works: over HTTP, after real calls.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "gemmd/v1/shared_memory.grpc.pb.h"
#include "gemmd/v1/tensor.grpc.pb.h"
#include "server/engine/call_observer.h"
#include "tests/e2e/async_call.h"
#include "tests/e2e/process.h"
#include "tests/e2e/server_fixture.h"
#include "tests/support/fake_nvml.h"
#include "tests/support/http_get.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The exposition at "127.0.0.1:PORT"; empty when there is none.
std::string Scrape(const std::string& address) {
  const std::string answer =
      HttpGet(std::atoi(address.c_str() + address.rfind(':') + 1), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

// Sample by sample: 'name{label="value"}' -> value.
using Samples = std::map<std::string, double>;
Samples Parse(const std::string& exposition) {
  Samples samples;
  std::istringstream lines(exposition);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
        << line;
  }
  return samples;
}

double Value(const Samples& samples, const std::string& sample) {
  const auto found = samples.find(sample);
  EXPECT_NE(found, samples.end()) << sample;
  return found == samples.end() ? -1 : found->second;
}

std::string Started(const std::string& method) {
  return "gemmd_requests_started_total{method=\"" + method + "\"}";
}
std::string Ended(const std::string& method, const std::string& code) {
  return "gemmd_requests_total{code=\"" + code + "\",method=\"" + method + "\"}";
}

double EndedWithAnyCode(const Samples& samples, const std::string& method) {
  double sum = 0;
  for (const auto& [sample, value] : samples) {
    if (sample.find("gemmd_requests_total{") == 0 &&
        sample.find("method=\"" + method + "\"") != std::string::npos) {
      sum += value;
    }
  }
  return sum;
}

class ScrapeTest : public ServerFixture {
 protected:
  ScrapeTest() {
    config_.metrics_enabled = true;
    config_.metrics.port = 0;
  }

  Samples Read() const { return Parse(Scrape(server_->metrics_address())); }

  // Bytes to any method; the status.
  grpc::Status Raw(const std::string& method, const std::string& bytes) {
    grpc::GenericStub generic(channel_);
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> ended;
    generic.UnaryCall(&context, method, {}, &request, &response,
                      [&](grpc::Status status) { ended.set_value(std::move(status)); });
    return ended.get_future().get();
  }

  // What follows the end of a call on the server; another thread brings it about.
  void UntilSampleIs(const std::string& sample, double value) {
    const auto limit = SteadyClock::now() + kLongEnough;
    while (Value(Read(), sample) != value) {
      ASSERT_LT(SteadyClock::now(), limit) << sample;
      std::this_thread::yield();
    }
  }
};

TEST_F(ScrapeTest, EveryCallIsCountedWhoeverRefusesIt) {
  config_.max_message_bytes = 1 << 20;
  StartOnCpu();
  ASSERT_TRUE(Gemm(OnesRequest(8, 8, 8)).ok());
  ASSERT_TRUE(Gemm(OnesRequest(0, 8, 8)).ok());
  v1::GemmRequest bad = OnesRequest(8, 8, 8);
  bad.mutable_problem()->set_m(-1);
  ASSERT_FALSE(Gemm(bad).ok());                                                 // the codec
  ASSERT_FALSE(Raw("/gemmd.v1.GemmService/Gemm", "\x0a\xff\xff\x0f ..").ok());  // the parser
  ASSERT_FALSE(Raw("/gemmd.v1.GemmService/Gone", "").ok());                     // no such method
  ASSERT_FALSE(Raw("/no.such.Service/Gemm", "").ok());
  grpc::ClientContext contexts[5];
  for (grpc::ClientContext& context : contexts) SetDeadline(&context);
  EXPECT_FALSE(stub_->GemmStream(&contexts[0])->Finish().ok());
  v1::TensorInfo tensor;
  EXPECT_FALSE(
      v1::TensorService::NewStub(channel_)->PutTensor(&contexts[1], &tensor)->Finish().ok());
  v1::SharedMemoryRegion region;
  EXPECT_FALSE(v1::SharedMemoryService::NewStub(channel_)
                   ->RegisterSharedMemory(&contexts[2], {}, &region)
                   .ok());
  EXPECT_EQ(Health(""), grpc::health::v1::HealthCheckResponse::SERVING);
  v1::Statistics statistics;
  ASSERT_TRUE(info_->GetStatistics(&contexts[3], {}, &statistics).ok());
  v1::ProfileResponse profile;
  EXPECT_EQ(info_->Profile(&contexts[4], {}, &profile).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);

  const Samples samples = Read();
  EXPECT_EQ(Value(samples, Started("Gemm")), 4);
  EXPECT_EQ(Value(samples, Ended("Gemm", "OK")), 2);
  EXPECT_EQ(Value(samples, Ended("Gemm", "INVALID_ARGUMENT")), 2);
  EXPECT_EQ(Value(samples, Started("other")), 2);
  EXPECT_EQ(Value(samples, Ended("other", "UNIMPLEMENTED")), 2);
  for (const char* method : {"GemmStream", "PutTensor", "RegisterSharedMemory"}) {
    EXPECT_EQ(Value(samples, Started(method)), 1) << method;
    EXPECT_EQ(Value(samples, Ended(method, "UNIMPLEMENTED")), 1) << method;
  }
  EXPECT_EQ(Value(samples, Ended("HealthCheck", "OK")), 1);
  EXPECT_EQ(Value(samples, Ended("GetStatistics", "OK")), 1);
  EXPECT_EQ(Value(samples, Ended("Profile", "INVALID_ARGUMENT")), 1);
  EXPECT_EQ(Value(samples, Ended("Profile", "UNKNOWN")), 0);
  EXPECT_EQ(Value(samples, "gemmd_rejected_total{reason=\"invalid\"}"), 2);
  EXPECT_EQ(Value(samples, "gemmd_request_duration_seconds_count"), 2);
  EXPECT_EQ(Value(samples, "gemmd_kernel_launches_total{kernel=\"openblas\",stages=\"0\"}"), 1);
  EXPECT_EQ(Value(samples, "gemmd_kernel_flops_total{kernel=\"openblas\"}"), 1024);
  EXPECT_EQ(Value(samples, "gemmd_inflight_requests"), 0);

  // The other account of the same products.
  EXPECT_EQ(statistics.requests_admitted() + statistics.requests_rejected(), 4);
  EXPECT_EQ(statistics.requests_completed() - statistics.requests_failed(), 2);
}

TEST_F(ScrapeTest, EveryCallThatStartedEndsOnceWhateverTheTransportRefuses) {
  config_.max_message_bytes = 1 << 20;
  StartOnCpu();
  v1::GemmRequest large = OnesRequest(1, 1, 1);
  large.mutable_a()->set_inline_(std::string(2 << 20, 'x'));
  EXPECT_EQ(Gemm(large).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext compressed, metadata;
  SetDeadline(&compressed);
  SetDeadline(&metadata);
  compressed.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  metadata.AddMetadata("x-large", std::string(64 << 10, 'x'));
  v1::GemmResponse response;
  EXPECT_FALSE(stub_->Gemm(&compressed, OnesRequest(64, 64, 64), &response).ok());
  EXPECT_FALSE(  // over a connection of its own, which does not outlive it
      v1::GemmService::NewStub(NewChannel())
          ->Gemm(&metadata, OnesRequest(1, 1, 1), &response)
          .ok());
  ASSERT_TRUE(Gemm(OnesRequest(1, 1, 1)).ok());
  const auto limit = SteadyClock::now() + kLongEnough;
  for (const CallMethod& method : kCallMethods) {
    const std::string name(method.name);
    for (Samples samples = Read(); Value(samples, Started(name)) != EndedWithAnyCode(samples, name);
         samples = Read()) {
      ASSERT_LT(SteadyClock::now(), limit) << name;
    }
  }
}

TEST_F(ScrapeTest, ACallThatEndsBeforeItsMessageIsNoBadRequest) {
  StartOnCpu();
  for (const bool gives_up : {true, false}) {
    grpc::GenericStub generic(channel_);
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::CompletionQueue queue;
    const auto next = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
    };
    const auto call = generic.PrepareCall(&context, "/gemmd.v1.GemmService/Gemm", &queue);
    call->StartCall(nullptr);
    next();
    if (gives_up) {
      context.TryCancel();
    } else {
      call->WritesDone(nullptr);
      next();
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    next();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED) << status.error_message();
    UntilSampleIs(Ended("Gemm", "CANCELLED"), gives_up ? 1 : 2);
  }
  EXPECT_EQ(Value(Read(), "gemmd_rejected_total{reason=\"invalid\"}"), 0);
  EXPECT_EQ(Value(Read(), Ended("Gemm", "INVALID_ARGUMENT")), 0);
}

TEST_F(ScrapeTest, AWatchThatItsCallerEndsIsCancelled) {
  StartOnCpu();
  const auto health = grpc::health::v1::Health::NewStub(channel_);
  grpc::ClientContext context;
  const auto watch = health->Watch(&context, {});
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  context.TryCancel();
  EXPECT_FALSE(watch->Finish().ok());
  UntilSampleIs(Ended("HealthWatch", "CANCELLED"), 1);
  EXPECT_EQ(Value(Read(), Ended("HealthWatch", "UNKNOWN")), 0);
}

TEST_F(ScrapeTest, ProductsThatCallersGiveUpAreCountedByWhatTheyWereDoing) {
  StartOnManual();
  AsyncCall running(stub_.get(), OnesRequest(4, 4, 4),
                    std::chrono::system_clock::now() + kLongEnough);
  manual_->WaitForStarted(1);
  AsyncCall waiting(stub_.get(), OnesRequest(4, 4, 4),
                    std::chrono::system_clock::now() + kLongEnough);
  UntilSampleIs("gemmd_queue_depth", 1);
  waiting.Cancel();
  UntilSampleIs("gemmd_cancelled_total{phase=\"queue\"}", 1);
  EXPECT_EQ(Value(Read(), Ended("Gemm", "CANCELLED")), 1);
  AsyncCall late(stub_.get(), OnesRequest(4, 4, 4),
                 std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  UntilSampleIs("gemmd_cancelled_total{phase=\"queue\"}", 2);

  running.Cancel();
  UntilSampleIs("gemmd_cancelled_total{phase=\"run\"}", 1);
  EXPECT_EQ(Value(Read(), "gemmd_inflight_requests"), 1);  // what runs is not interrupted
  manual_->CompleteAll();
  UntilSampleIs("gemmd_inflight_requests", 0);
  EXPECT_EQ(Value(Read(), "gemmd_cancelled_total{phase=\"reply\"}"), 0);
}

TEST_F(ScrapeTest, AReplyThatNobodyTakesCountsAsCancelledInTheReply) {
  StartOnCpu();
  grpc::GenericStub generic(channel_);
  grpc::ClientContext context;
  SetDeadline(&context);
  // The reply has 4 MiB, more than the connection carries before its receiver reads.
  const std::string bytes = OnesRequest(1024, 1024, 1).SerializeAsString();
  grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::CompletionQueue queue;
  const auto call =
      generic.PrepareUnaryCall(&context, "/gemmd.v1.GemmService/Gemm", request, &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall();
  call->ReadInitialMetadata(nullptr);  // sends the request
  UntilSampleIs(Ended("Gemm", "OK"), 1);
  context.TryCancel();
  UntilSampleIs("gemmd_cancelled_total{phase=\"reply\"}", 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  call->Finish(&response, &status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ScrapeTest, ADroppedStallRecordIsInNoReplyAndNoSum) {
  config_.gpu_gauges = false;
  StartOnManual({.traits = H200Traits()});
  LaneResult kept, dropped;
  kept.stalls = {.measured = true, .wait_full = 3, .wait_empty = 2, .mainloop = 70, .k_tiles = 1};
  dropped.stalls.dropped = true;
  for (const LaneResult& result : {dropped, kept, dropped}) {
    AsyncCall call(stub_.get(), OnesRequest(8, 8, 8),
                   std::chrono::system_clock::now() + kLongEnough);
    Until([&] { return manual_->running() == 1; });
    manual_->CompleteNext(result);
    ASSERT_TRUE(call.Wait().ok());
    EXPECT_EQ(call.response().execution().has_stalls(), result.stalls.measured);
  }
  const Samples samples = Read();
  EXPECT_EQ(Value(samples, "gemmd_kernel_stall_records_dropped_total"), 2);
  double mainloop = 0;
  for (const auto& [sample, value] : samples) {
    if (sample.find("part=\"mainloop\"") != std::string::npos) mainloop += value;
  }
  EXPECT_EQ(mainloop, 70);
}

// A device that the fake NVML knows, which the loader takes for the real one.
class GpuScrapeTest : public ScrapeTest {
 protected:
  void SetUp() override {
    ASSERT_NE(nvml_, nullptr) << GEMMD_FAKE_NVML;
    nvml_->Reset();
    gpu_.traits = H200Traits();
    gpu_.traits.uuid = kSecondGpu;
    gpu_.traits.ordinal = 3;
  }
  // Ends the server, so that nothing of it may still be about to read.
  void ExpectNoGauges() {
    EXPECT_THAT(Scrape(server_->metrics_address()), Not(HasSubstr("gemmd_gpu_")));
    server_.reset();
    EXPECT_EQ(nvml_->calls("nvmlInit_v2"), 0);
  }

  FakeNvml* const nvml_ = FakeNvml::Get();
  ManualBackendOptions gpu_;
};

TEST_F(GpuScrapeTest, DevicesThatServeHaveGaugesUnderTheirLabel) {
  StartOnManual(gpu_);
  const std::string power = "gemmd_gpu_power_watts{device=\"3\"}";
  Until([&] { return Read().count(power) > 0; });
  EXPECT_EQ(Value(Read(), power), 71.5);
  EXPECT_EQ(Value(Read(), "gemmd_gpu_throttle_reason{device=\"3\",reason=\"gpu_idle\"}"), 1);
  EXPECT_EQ(Value(Read(), "gemmd_lanes{device=\"3\",state=\"idle\"}"), 1);
}

TEST_F(GpuScrapeTest, NothingIsReadWhereGaugesAreOff) {
  config_.gpu_gauges = false;
  StartOnManual(gpu_);
  manual_ = nullptr;
  ExpectNoGauges();
}

TEST_F(GpuScrapeTest, NothingIsReadOnTheCpu) {
  StartOnCpu();
  ExpectNoGauges();
}

TEST(CallMethodsTest, AreAllThatTheServicesDeclare) {
  std::set<std::string> declared, counted;
  for (const char* name :
       {"gemmd.v1.GemmService", "gemmd.v1.ServerService", "gemmd.v1.TensorService",
        "gemmd.v1.SharedMemoryService", "grpc.health.v1.Health"}) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i) {
      declared.insert(std::string(name) + "/" + service->method(i)->name());
    }
  }
  std::set<std::string> names;
  for (const CallMethod& method : kCallMethods) {
    if (!method.path.empty()) counted.insert(std::string(method.path));
    EXPECT_TRUE(names.insert(std::string(method.name)).second) << method.name;
  }
  EXPECT_EQ(counted, declared);
}

// The real program.
class LiveScrapeTest : public ::testing::Test {
 protected:
  // Two good products, one bad one and one unbuilt call later.
  void ServeAFew(const Process& process) {
    const std::string address = process.Address("grpc");
    ASSERT_NE(address, "") << process.output();
    const auto stub =
        v1::GemmService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext contexts[4];
    for (grpc::ClientContext& context : contexts) {
      context.set_deadline(std::chrono::system_clock::now() + kLongEnough);
    }
    v1::GemmResponse response;
    ASSERT_TRUE(stub->Gemm(&contexts[0], OnesRequest(8, 8, 8), &response).ok());
    ASSERT_TRUE(stub->Gemm(&contexts[1], OnesRequest(3, 5, 7), &response).ok());
    ASSERT_FALSE(stub->Gemm(&contexts[2], v1::GemmRequest(), &response).ok());
    ASSERT_FALSE(stub->GemmStream(&contexts[3])->Finish().ok());
  }
};

TEST_F(LiveScrapeTest, CountersHoldWhatWasSent) {
  const Process process(Args());
  ServeAFew(process);
  const Samples samples = Parse(Scrape(process.Address("metrics")));
  EXPECT_EQ(Value(samples, Started("Gemm")), 3);
  EXPECT_EQ(Value(samples, Ended("Gemm", "OK")), 2);
  EXPECT_EQ(EndedWithAnyCode(samples, "Gemm"), 3);
  EXPECT_EQ(Value(samples, Ended("GemmStream", "UNIMPLEMENTED")), 1);
  EXPECT_EQ(Value(samples, "gemmd_rejected_total{reason=\"invalid\"}"), 1);
  EXPECT_EQ(Value(samples, "gemmd_kernel_launches_total{kernel=\"openblas\",stages=\"0\"}"), 2);
  EXPECT_EQ(Value(samples, "gemmd_kernel_flops_total{kernel=\"openblas\"}"), 1024 + 2 * 3 * 5 * 7);
  EXPECT_EQ(Value(samples, "gemmd_lanes{device=\"0\",state=\"idle\"}"), 1);
}

TEST_F(LiveScrapeTest, PromtoolFindsNothingToSay) {
  if (std::system("command -v promtool >/dev/null") != 0) {
    GTEST_SKIP() << "promtool check metrics: no promtool (package prometheus)";
  }
  const Process process(Args());
  ServeAFew(process);
  const std::string path = ::testing::TempDir() + "gemmd_scrape_" + std::to_string(getpid());
  std::ofstream(path) << Scrape(process.Address("metrics"));
  FILE* const promtool = popen(("promtool check metrics <" + path + " 2>&1").c_str(), "r");
  ASSERT_NE(promtool, nullptr);
  std::string said;
  for (char line[512]; std::fgets(line, sizeof line, promtool) != nullptr;) said += line;
  EXPECT_EQ(pclose(promtool), 0);
  EXPECT_EQ(said, "");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace gemmd::testing
