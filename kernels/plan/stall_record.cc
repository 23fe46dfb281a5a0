#include "kernels/plan/stall_record.h"

#include <algorithm>
#include <chrono>

namespace gemmd {
namespace {

// The device's clock register has 32 bits, and so have the sums of a block.
constexpr double kWrapClocks = 4294967296.0;

// Events resolve half a microsecond, and the highest clock is a nominal one.
constexpr double kSlackFactor = 2;
constexpr double kSlackSeconds = 10e-6;

// Tiles of D that blocks compute, over the batch.
uint64_t Tiles(const GemmProblem& problem, const Plan& plan) {
  const KernelConfig& config = kKernelTable[plan.row].config;
  int64_t m = CeilDiv(problem.m, config.block_m), n = CeilDiv(problem.n, config.block_n);
  if (plan.pair) {
    int64_t& paired = PairsAlongM(config) ? m : n;
    paired += paired % 2;
  }
  return static_cast<uint64_t>(m) * static_cast<uint64_t>(n) * static_cast<uint64_t>(problem.batch);
}

// Blocks of the launch that are resident at once, at most: by the device's own limits, since a
// kernel may use fewer registers than the planner counts. A block of the TMA kernels has more than
// half of an SM's shared memory.
double BlocksAtOnce(const GemmProblem& problem, const Plan& plan, const DeviceTraits& traits) {
  const KernelConfig& config = kKernelTable[plan.row].config;
  const int of_sm = config.family == Family::kTmaWgmma
                        ? 1
                        : std::min(traits.blocks_per_sm, traits.threads_per_sm / Threads(config));
  const double all = static_cast<double>(Tiles(problem, plan)) * plan.split_k;
  return std::min(all, static_cast<double>(traits.sm_count) * of_sm);
}

}  // namespace

uint64_t KTilesOfLaunch(const GemmProblem& problem, const Plan& plan) {
  const int64_t steps = CeilDiv(problem.k, kKernelTable[plan.row].config.block_k);
  return Tiles(problem, plan) * static_cast<uint64_t>(steps);
}

StallSample JudgeStalls(const StallSample& record, const GemmProblem& problem, const Plan& plan,
                        const DeviceTraits& traits, Nanoseconds kernel) {
  const KernelConfig& config = kKernelTable[plan.row].config;
  const double seconds = std::chrono::duration<double>(kernel).count();
  const auto within = [](uint64_t cycles, double limit) {
    return static_cast<double>(cycles) <= limit;
  };
  // What one thread counts are spans of its block's life that do not overlap; blocks live within
  // the launch, and so many at once. In ping-pong two threads of a block count main loops.
  const double lives = (kSlackFactor * seconds + kSlackSeconds) * traits.clock_hz *
                       BlocksAtOnce(problem, plan, traits);
  const double consumers = config.ping_pong ? 2 : 1;
  // The producer's waits are in the main loop where it is the consumer's own thread.
  const uint64_t wait_in_loop = config.family == Family::kTmaWgmma ? 0 : record.wait_empty;
  const bool can_be =
      seconds * traits.clock_hz < kWrapClocks && record.k_tiles == KTilesOfLaunch(problem, plan) &&
      record.mainloop >= record.k_tiles &&  // none takes less than a clock
      record.wait_full <= record.mainloop && wait_in_loop <= record.mainloop - record.wait_full &&
      within(record.wait_empty, lives) && within(record.mainloop, consumers * lives) &&
      within(record.epilogue, consumers * lives - static_cast<double>(record.mainloop));
  if (can_be) return record;
  StallSample dropped;
  dropped.dropped = true;
  return dropped;
}

}  // namespace gemmd
