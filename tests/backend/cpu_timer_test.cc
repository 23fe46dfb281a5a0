// What tuning and studies may ask of a CPU: memory within a limit, and an end soon after a stop.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_plan_timer.h"

namespace gemmd {
namespace {

GemmProblem Square(int64_t extent) {
  GemmProblem problem;
  problem.m = problem.n = problem.k = extent;
  return WithPackedLayouts(problem);
}

std::unique_ptr<Backend> BackendOf(int64_t memory_bytes) {
  return *MakeCpuBackend({.lanes = 1, .threads = 1, .memory_bytes = memory_bytes});
}

void ExpectNotTimable(const Backend& backend, const GemmProblem& problem, const std::string& bytes,
                      const std::string& limit) {
  EXPECT_TRUE(backend.CheckFits(problem).ok()) << "only timing is refused";
  const Status status = backend.CheckTimable(problem);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_EQ(status.message(), ToString(problem) + " has " + bytes +
                                  " bytes of operands and result; the limit of what is timed is " +
                                  limit);
}

TEST(CpuTimerTest, TimesNothingLargerThanTheLimit) {
  const auto backend = BackendOf(int64_t{1} << 40);
  EXPECT_TRUE(backend->CheckTimable(Square(8192)).ok());
  ExpectNotTimable(*backend, Square(30000), "10800000000", "4294967296 bytes");
}

TEST(CpuTimerTest, LeavesHalfOfASmallHost) {
  const auto backend = BackendOf(64 << 20);
  EXPECT_TRUE(backend->CheckTimable(Square(1024)).ok());
  ExpectNotTimable(*backend, Square(2000), "48000000", "33554432 bytes, half of the host's memory");
}

int64_t ResidentBytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(CpuTimerTest, AStopBeforeTheFirstRunLeavesTheMemoryUntouched) {
  const int64_t before = ResidentBytes();
  const auto timer = MakeCpuPlanTimer(Square(10000));  // 1.2 GB
  ASSERT_TRUE(timer.ok()) << timer.status().ToString();
  std::stop_source stop;
  stop.request_stop();
  const auto timings = (*timer)->Time(std::vector<Plan>(1), {}, stop.get_token());
  EXPECT_EQ(timings.status().code(), StatusCode::kCancelled) << timings.status().ToString();
  EXPECT_LT(ResidentBytes() - before, 64 << 20);
}

// Zeros that take no memory while they are only read.
class Zeros {
 public:
  explicit Zeros(int64_t bytes)
      : data_(static_cast<std::byte*>(std::calloc(static_cast<size_t>(bytes), 1)), &std::free) {}
  std::byte* data() const { return data_.get(); }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

// Few rows of a wide or deep product are seconds of work, in one call of BLAS if it could.
void ExpectStopInTheFirstBlock(int64_t n, int64_t k) {
  GemmProblem problem;
  problem.m = 192;
  problem.n = n;
  problem.k = k;
  problem = WithPackedLayouts(problem);
  const Zeros a(problem.m * k * 4), b(n * k * 4);
  std::vector<float> d(static_cast<size_t>(problem.m * n), -1);
  std::stop_source stop;
  std::thread stopper([&] {
    while (std::atomic_ref<float>(d.front()).load() == -1) std::this_thread::yield();
    stop.request_stop();
  });
  CpuGemm gemm;
  const Status status =
      gemm.Run(problem, {.a = a.data(), .b = b.data(), .d = reinterpret_cast<std::byte*>(d.data())},
               stop.get_token());
  stopper.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.ToString();
  EXPECT_EQ(d.back(), -1) << "the last block was run";
}

TEST(CpuGemmTest, StopsBetweenTheColumnsOfAWideProduct) {
  ExpectStopInTheFirstBlock(/*n=*/32768, /*k=*/8192);
}

TEST(CpuGemmTest, StopsBetweenTheColumnsOfADeepProduct) {
  ExpectStopInTheFirstBlock(/*n=*/2048, /*k=*/200'000);
}

}  // namespace
}  // namespace gemmd
