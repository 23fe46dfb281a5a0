#include "server/engine/totals.h"

namespace gemmd {
namespace {

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

}  // namespace

double FlopsDone(const GemmRequest& request, const GemmResult& result) {
  return result.status.ok() && request.problem.reads_ab() ? request.problem.flops() : 0.0;
}

void TotalsObserver::Admitted(const GemmRequest&) { admitted_.fetch_add(1, kRelaxed); }

void TotalsObserver::Rejected(RejectReason) { rejected_.fetch_add(1, kRelaxed); }

void TotalsObserver::Completed(const GemmRequest& request, const GemmResult& result) {
  completed_.fetch_add(1, kRelaxed);
  if (!result.status.ok()) failed_.fetch_add(1, kRelaxed);
  flops_.fetch_add(FlopsDone(request, result), kRelaxed);
  const int index = SlotOf(result.plan.row, result.plan.stages);
  if (index < 0) return;
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.launches.fetch_add(1, kRelaxed);
  slot.kernel_ns.fetch_add(result.times.kernel.count(), kRelaxed);
  if (!result.stalls.measured) return;
  slot.measured.store(true, kRelaxed);
  slot.wait_full.fetch_add(result.stalls.wait_full, kRelaxed);
  slot.wait_empty.fetch_add(result.stalls.wait_empty, kRelaxed);
  slot.mainloop.fetch_add(result.stalls.mainloop, kRelaxed);
  slot.epilogue.fetch_add(result.stalls.epilogue, kRelaxed);
  slot.k_tiles.fetch_add(result.stalls.k_tiles, kRelaxed);
}

EngineTotals TotalsObserver::Snapshot() const {
  EngineTotals totals;
  totals.admitted = admitted_.load(kRelaxed);
  totals.completed = completed_.load(kRelaxed);
  totals.failed = failed_.load(kRelaxed);
  totals.rejected = rejected_.load(kRelaxed);
  totals.flops = flops_.load(kRelaxed);
  for (int i = 0; i < kLaunchSlots; ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    KernelTotals kernel;
    kernel.launches = slot.launches.load(kRelaxed);
    if (kernel.launches == 0) continue;
    kernel.row = SlotAt(i).row;
    kernel.stages = SlotAt(i).stages;
    kernel.kernel_time = Nanoseconds(slot.kernel_ns.load(kRelaxed));
    kernel.stalls = {.measured = slot.measured.load(kRelaxed),
                     .wait_full = slot.wait_full.load(kRelaxed),
                     .wait_empty = slot.wait_empty.load(kRelaxed),
                     .mainloop = slot.mainloop.load(kRelaxed),
                     .epilogue = slot.epilogue.load(kRelaxed),
                     .k_tiles = slot.k_tiles.load(kRelaxed)};
    totals.kernel_time += kernel.kernel_time;
    totals.kernels.push_back(kernel);
  }
  return totals;
}

}  // namespace gemmd
