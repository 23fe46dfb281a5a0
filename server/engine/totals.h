// What an engine has done since it started, as numbers that a statistics call can answer with.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/core/timing.h"
#include "server/engine/launch_slots.h"
#include "server/engine/observer.h"

namespace gemmd {

struct KernelTotals {
  int row = -1;  // into kKernelTable
  int stages = 0;
  int64_t launches = 0;
  Nanoseconds kernel_time{0};
  StallSample stalls;  // sums; `measured` when any launch was
};

struct EngineTotals {
  int64_t admitted = 0;
  int64_t completed = 0;  // with any status
  int64_t failed = 0;     // of those, not OK
  int64_t rejected = 0;   // never admitted
  double flops = 0;       // of products that ended OK and read A and B
  Nanoseconds kernel_time{0};
  std::vector<KernelTotals> kernels;  // those launched at least once, in the table's order
};

// Counts with relaxed atomics: each total is exact, a snapshot of several is not one instant.
class TotalsObserver : public EngineObserver {
 public:
  void Admitted(const GemmRequest& request) override;
  void Rejected(RejectReason reason) override;
  void Completed(const GemmRequest& request, const GemmResult& result) override;

  EngineTotals Snapshot() const;

 private:
  struct Slot {
    std::atomic<int64_t> launches{0};
    std::atomic<int64_t> kernel_ns{0};
    std::atomic<bool> measured{false};
    std::atomic<uint64_t> wait_full{0}, wait_empty{0}, mainloop{0}, epilogue{0}, k_tiles{0};
  };

  std::atomic<int64_t> admitted_{0}, completed_{0}, failed_{0}, rejected_{0};
  std::atomic<double> flops_{0};
  std::array<Slot, kLaunchSlots> slots_;
};

// Floating-point operations that `result` stands for: none unless it is OK and read A and B.
double FlopsDone(const GemmRequest& request, const GemmResult& result);

}  // namespace gemmd
