#include "server/engine/totals.h"

#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace gemmd {
namespace {

GemmRequest RequestOf(int64_t m, int64_t n, int64_t k) {
  GemmRequest request;
  request.problem.m = m;
  request.problem.n = n;
  request.problem.k = k;
  return request;
}

GemmResult ResultOf(int row, int stages, std::chrono::nanoseconds kernel_time) {
  GemmResult result;
  result.plan.row = row;
  result.plan.stages = stages;
  result.times.kernel = kernel_time;
  return result;
}

TEST(LaunchSlotsTest, NumberEveryKernelAndStageCountOnce) {
  std::set<std::pair<int, int>> seen;
  for (int slot = 0; slot < kLaunchSlots; ++slot) {
    const LaunchSlot at = SlotAt(slot);
    EXPECT_EQ(SlotOf(at.row, at.stages), slot);
    EXPECT_LE(at.stages, kKernelTable[at.row].config.max_stages);
    EXPECT_TRUE(seen.emplace(at.row, at.stages).second);
  }
  EXPECT_EQ(SlotAt(0).row, 0);
  EXPECT_EQ(SlotAt(kLaunchSlots - 1).row, kKernelRows - 1);
}

TEST(LaunchSlotsTest, HaveNoneForWhatTheTableDoesNotAllow) {
  EXPECT_EQ(SlotOf(-1, 0), -1);
  EXPECT_EQ(SlotOf(kKernelRows, 1), -1);
  EXPECT_EQ(SlotOf(0, 0), -1);
  EXPECT_EQ(SlotOf(0, kKernelTable[0].config.max_stages + 1), -1);
  EXPECT_EQ(SlotOf(RowOfFamily(Family::kBlas), 1), -1);
}

TEST(TotalsObserverTest, SumsByKernelAndStages) {
  TotalsObserver totals;
  const GemmRequest request = RequestOf(2, 3, 4);
  totals.Admitted(request);
  totals.Admitted(request);
  totals.Admitted(request);
  GemmResult result = ResultOf(1, 3, std::chrono::microseconds(5));
  result.stalls = {.measured = true,
                   .wait_full = 1,
                   .wait_empty = 2,
                   .mainloop = 3,
                   .epilogue = 4,
                   .k_tiles = 5};
  totals.Completed(request, result);
  totals.Completed(request, result);
  result = ResultOf(-1, 0, {});
  result.status = Cancelled("");
  totals.Completed(request, result);
  totals.Rejected(RejectReason::kQueueFull);

  const EngineTotals sum = totals.Snapshot();
  EXPECT_EQ(sum.admitted, 3);
  EXPECT_EQ(sum.completed, 3);
  EXPECT_EQ(sum.failed, 1);
  EXPECT_EQ(sum.rejected, 1);
  EXPECT_EQ(sum.flops, 2 * 2.0 * 2 * 3 * 4);
  EXPECT_EQ(sum.kernel_time, std::chrono::microseconds(10));
  ASSERT_EQ(sum.kernels.size(), 1u);
  const KernelTotals& kernel = sum.kernels.front();
  EXPECT_EQ(kernel.row, 1);
  EXPECT_EQ(kernel.stages, 3);
  EXPECT_EQ(kernel.launches, 2);
  EXPECT_EQ(kernel.kernel_time, std::chrono::microseconds(10));
  EXPECT_TRUE(kernel.stalls.measured);
  EXPECT_EQ(kernel.stalls.wait_full, 2u);
  EXPECT_EQ(kernel.stalls.wait_empty, 4u);
  EXPECT_EQ(kernel.stalls.mainloop, 6u);
  EXPECT_EQ(kernel.stalls.epilogue, 8u);
  EXPECT_EQ(kernel.stalls.k_tiles, 10u);
}

TEST(TotalsObserverTest, CountsNoFlopsWhereAAndBAreNotRead) {
  TotalsObserver totals;
  GemmRequest request = RequestOf(2, 3, 4);
  request.problem.alpha = 0;
  totals.Completed(request, ResultOf(RowOfFamily(Family::kEpilogueOnly), 0, {}));
  EXPECT_EQ(totals.Snapshot().flops, 0);
  EXPECT_EQ(totals.Snapshot().kernels.size(), 1u);
}

TEST(TotalsObserverTest, LosesNothingBetweenThreads) {
  TotalsObserver totals;
  const GemmRequest request = RequestOf(1, 1, 1);
  const GemmResult result = ResultOf(0, 1, std::chrono::nanoseconds(1));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) totals.Completed(request, result);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(totals.Snapshot().completed, 8000);
  EXPECT_EQ(totals.Snapshot().flops, 16000);
  EXPECT_EQ(totals.Snapshot().kernels.front().kernel_time.count(), 8000);
}

TEST(ObserverListTest, TellsEveryObserver) {
  TotalsObserver first, second;
  ObserverList both({&first, &second});
  const GemmRequest request = RequestOf(1, 1, 1);
  both.Admitted(request);
  both.Rejected(RejectReason::kMemory);
  both.Completed(request, ResultOf(0, 1, {}));
  for (const TotalsObserver* observer : {&first, &second}) {
    EXPECT_EQ(observer->Snapshot().admitted, 1);
    EXPECT_EQ(observer->Snapshot().rejected, 1);
    EXPECT_EQ(observer->Snapshot().completed, 1);
  }
}

TEST(RejectReasonTest, EachHasItsOwnName) {
  std::set<std::string_view> names;
  for (const RejectReason reason : kRejectReasons) names.insert(Name(reason));
  EXPECT_EQ(names.size(), std::size(kRejectReasons));
}

}  // namespace
}  // namespace gemmd
