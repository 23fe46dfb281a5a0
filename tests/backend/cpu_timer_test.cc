// What tuning and studies may ask of a CPU: memory within a limit.
#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"

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

}  // namespace
}  // namespace gemmd
