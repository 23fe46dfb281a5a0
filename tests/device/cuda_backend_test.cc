// The pool of lanes and memory of a CUDA device. That products are right is the conformance suite's
// matter (tests/backend).
#include "kernels/cuda/cuda_backend.h"

#include <atomic>
#include <future>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/cuda/gemm_params.h"
#include "kernels/plan/planner.h"
#include "tests/device/device_fixture.h"
#include "tests/support/matrices.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

class CudaBackendTest : public DeviceTest {
 protected:
  static constexpr int64_t kPool = int64_t{64} << 20;

  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    StatusOr<std::unique_ptr<Backend>> made =
        MakeCudaBackend(0, {.lanes = 2, .device_pool_bytes = kPool, .pinned_pool_bytes = kPool});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    backend_ = *std::move(made);
    backend_->SetReleaseListener([this] { ++releases_; });
  }

  static GemmProblem Problem(int64_t extent) {
    GemmProblem p;
    p.m = p.n = p.k = extent;
    return WithPackedLayouts(p);
  }

  std::unique_ptr<Backend> backend_;
  std::atomic<int> releases_{0};
};

TEST_F(CudaBackendTest, LanesAreLeasedExclusivelyAndComeBack) {
  std::optional<LaneLease> first = backend_->TryAcquireLane(Problem(10));
  std::optional<LaneLease> second = backend_->TryAcquireLane(Problem(10));
  ASSERT_TRUE(first && second);
  EXPECT_NE((*first)->index(), (*second)->index());
  EXPECT_FALSE(backend_->TryAcquireLane(Problem(10))) << "two lanes";
  EXPECT_EQ(backend_->usage().lanes_in_use, 2);
  first.reset();
  EXPECT_EQ(releases_, 1);
  EXPECT_TRUE(backend_->TryAcquireLane(Problem(10)));
  second.reset();
  EXPECT_EQ(backend_->usage().lanes_in_use, 0);
  EXPECT_EQ(backend_->usage().device_pool_used_bytes, 0);
  EXPECT_EQ(backend_->usage().pinned_pool_used_bytes, 0);
}

TEST_F(CudaBackendTest, MemoryThatIsInUseNowMakesARequestWait) {
  const GemmProblem big = Problem(2000);  // 48 MB of the 64
  std::optional<LaneLease> held = backend_->TryAcquireLane(big);
  ASSERT_TRUE(held);
  EXPECT_TRUE(backend_->CheckFits(big).ok());
  EXPECT_FALSE(backend_->TryAcquireLane(big));
  EXPECT_TRUE(backend_->TryAcquireLane(Problem(10))) << "a small one still fits";
  held.reset();
  EXPECT_TRUE(backend_->TryAcquireLane(big));
}

TEST_F(CudaBackendTest, MemoryThatThereNeverIsIsRefusedWithTheBytesAndTheLimit) {
  const Status status = backend_->CheckFits(Problem(4000));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(3 * 4000 * 4000 * 4 + kStallBytes)));
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(kPool)));
}

TEST_F(CudaBackendTest, ALaneRunsAgainAtOnceFromInsideItsOwnCompletion) {
  const Planner planner(backend_->traits());
  const GemmProblem p = Problem(65);
  const Plan plan = *planner.PlanFor(p);
  std::vector<GemmData> data(20, GemmData(p, 7));
  std::promise<void> all_done;
  size_t next = 0;
  std::function<void()> submit = [&] {
    std::optional<LaneLease> lease = backend_->TryAcquireLane(p);
    ASSERT_TRUE(lease);
    auto shared = std::make_shared<LaneLease>(std::move(*lease));
    const HostOperands operands = data[next].operands();
    const auto done = [&, shared](const LaneResult& result) {
      EXPECT_TRUE(result.status.ok()) << result.status.ToString();
      EXPECT_GT(result.times.kernel.count(), 0);
      EXPECT_TRUE(result.stalls.measured);
      shared->Reset();
      if (++next < data.size()) {
        submit();
      } else {
        all_done.set_value();
      }
    };
    const Status status = (*shared)->Submit(p, plan, operands, done, {});
    ASSERT_TRUE(status.ok()) << status.ToString();
  };
  submit();
  all_done.get_future().wait();
  for (size_t i = 1; i < data.size(); ++i) EXPECT_EQ(data[i].result(), data[0].result());
  EXPECT_TRUE(data[0].GuardsIntact());
}

TEST_F(CudaBackendTest, TraitsDescribeTheDevice) {
  EXPECT_EQ(backend_->name(), "cuda");
  EXPECT_GE(backend_->traits().compute_capability, 80);
  EXPECT_GT(backend_->traits().sm_count, 0);
  EXPECT_GT(backend_->traits().clock_hz, 1e8);
  EXPECT_GT(backend_->traits().hbm_bytes_per_second, 1e11);
  EXPECT_EQ(backend_->traits().uuid.rfind("GPU-", 0), 0U);
}

TEST_F(CudaBackendTest, APoolThatCannotBeHadIsNamed) {
  const StatusOr<std::unique_ptr<Backend>> made = MakeCudaBackend(
      0, {.lanes = 1, .device_pool_bytes = int64_t{1} << 45, .pinned_pool_bytes = kPool});
  EXPECT_EQ(made.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(made.status().message(), HasSubstr("device_pool=35184372088832"));
}

TEST(DeviceProbeTest, AnOrdinalPastTheCountIsRefused) {
  const StatusOr<int> count = UsableCudaDevices();
  if (!count.ok()) GTEST_SKIP() << count.status().ToString();
  const StatusOr<DeviceTraits> traits = ProbeCudaDevice(*count);
  EXPECT_EQ(traits.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(traits.status().field(), "device");
}

}  // namespace
}  // namespace gemmd
