#include "kernels/plan/cost_model.h"

#include <algorithm>
#include <cmath>

namespace gemmd {
namespace {

// Constants of the model, in clocks of the highest SM clock. Fitted to the stage sweep of an H200
// (kernels/README.md).
constexpr double kLaunchSeconds = 2.5e-6;
constexpr double kPanelLatencyClocks = 1370;  // L: asked for to readable, under load
constexpr double kStepOverheadClocks = 300;   // O: barrier and first fragments
constexpr double kMmaFlopsPerClock = 2100;    // tensor issue alone
constexpr double kSmemBytesPerClock = 216;    // what fragments and panels add to it
constexpr double kSimtFlopsPerClock = 150;
constexpr double kEpilogueBytesPerClock = 11;  // of D, and again of C

// The same for the TMA kernel, which is alone on its SM and fetches the next tile's first panels
// while it stores the last.
constexpr double kTmaLaunchSeconds = 0.6e-6;
constexpr double kTmaLatencyClocks = 2065;      // of a launch's first panels
constexpr double kTmaRingLatencyClocks = 2500;  // L within the ring
constexpr double kWgmmaFlopsPerClock = 3314;
constexpr double kTmaStepClocks = 322;       // a step never takes less than this
constexpr double kTmaStepClocksPer64K = 90;  // and this for each 64 values of K
constexpr double kTmaBytesPerClock = 47;     // panels into one SM
constexpr double kTmaStoreClocks = 823;
constexpr double kTmaStoreBytesPerClock = 44;
constexpr double kTmaSlowStore = 1.25;  // times that, where a tile leaves in several goes
// Pairs: each waits for the other now and then.
constexpr double kPairSeconds = 0.2e-6;
constexpr double kPairStep = 1.06;
// Parts: the second kernel, and what reads and writes them.
constexpr double kSumSeconds = 4.0e-6;
constexpr double kSumBytesPerSecond = 2.4e12;

// C of the formula in cost_model.h.
double StepClocks(const KernelConfig& c) {
  const double flops = 2.0 * c.block_m * c.block_n * c.block_k;
  if (c.family == Family::kCpAsyncSimt) return flops / kSimtFlopsPerClock;
  // Every warp reads its own rows of A and columns of B; the panel is written once.
  const double elements =
      1.0 * (c.block_m * c.warps_n + c.block_n * c.warps_m + c.block_m + c.block_n) * c.block_k;
  return flops / kMmaFlopsPerClock + elements * ElementBytes(c) / kSmemBytesPerClock;
}

double WaveClocks(const KernelConfig& c, const GemmProblem& p, const TileShape& shape, int stages,
                  double resident) {
  const double step = StepClocks(c);
  const double period =
      stages == 1 ? std::max(resident * step + kStepOverheadClocks, kPanelLatencyClocks + step)
                  : std::max({resident * step, step + kStepOverheadClocks,
                              kPanelLatencyClocks / (stages - 1)});
  const double tile_bytes = 1.0 * c.block_m * c.block_n * SizeOf(p.type_d);
  const double epilogue = resident * tile_bytes * (p.reads_c() ? 2 : 1) / kEpilogueBytesPerClock;
  return kPanelLatencyClocks + static_cast<double>(shape.k_tiles) * period + epilogue;
}

// The larger of two bounds, but not sharply: near the edge, easing the smaller one still pays. How
// sharply depends on what meets: products and panels of one step, or a whole launch and what device
// memory can deliver in that time.
double SmoothMaxOfStep(double a, double b) {  // (a^6 + b^6)^(1/6), scaled to stay finite
  const double most = std::max(a, b), ratio = std::min(a, b) / most;
  const double cube = ratio * ratio * ratio;
  return most * std::cbrt(std::sqrt(1 + cube * cube));
}
double SmoothMaxOfLaunch(double a, double b) {  // the same with exponent 3
  const double most = std::max(a, b), ratio = std::min(a, b) / most;
  return most * std::cbrt(1 + ratio * ratio * ratio);
}

// One K step of the TMA kernel. Rows beyond the operand are not fetched.
double TmaStepClocks(const KernelConfig& c, const GemmProblem& p, const Plan& plan) {
  double rows_a = static_cast<double>(std::min<int64_t>(c.block_m, p.m));
  double rows_b = static_cast<double>(std::min<int64_t>(c.block_n, p.n));
  if (plan.pair) (PairsAlongM(c) ? rows_b : rows_a) /= 2;
  double step = std::max({2.0 * c.block_m * c.block_n * c.block_k / kWgmmaFlopsPerClock,
                          kTmaStepClocks + kTmaStepClocksPer64K * c.block_k / 64,
                          (rows_a + rows_b) * c.block_k * ElementBytes(c) / kTmaBytesPerClock});
  if (plan.pair) step *= kPairStep;
  return plan.stages == 1 ? kTmaRingLatencyClocks + step
                          : SmoothMaxOfStep(step, kTmaRingLatencyClocks / (plan.stages - 1));
}

// Blocks that run at once, one an SM.
int64_t BlocksAtOnce(const Plan& plan, const DeviceTraits& traits) {
  return plan.pair ? 2 * traits.resident_pairs : traits.sm_count;
}

// Parts of tiles that the busiest block computes, one after another.
int64_t TurnsOfBlock(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                     const DeviceTraits& traits) {
  const TileShape shape = ShapeOf(c, p);
  int64_t tiles = shape.tiles;
  if (plan.pair) {  // the last of an odd number has an idle partner
    const int64_t along = PairsAlongM(c) ? shape.m_tiles : shape.n_tiles;
    tiles = tiles / along * ((along + 1) / 2 * 2);
  }
  return CeilDiv(tiles * plan.split_k, BlocksAtOnce(plan, traits));
}

double TmaClocks(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                 const DeviceTraits& traits) {
  const TileShape shape = ShapeOf(c, p);
  const auto turns = static_cast<double>(TurnsOfBlock(c, p, plan, traits));
  // On average: blocks with a step less leave the bandwidth to those with one more.
  const double steps = static_cast<double>(shape.k_tiles) / plan.split_k;
  const double tile_elements = 1.0 * c.block_m * c.block_n;
  const bool leaves_parts = plan.split_k > 1;
  double store = kTmaStoreClocks + tile_elements * (leaves_parts ? 4 : SizeOf(p.type_d)) *
                                       (p.reads_c() ? 2 : 1) / kTmaStoreBytesPerClock;
  if (!StoresTileAtOnce(c, plan.stages)) {
    store *= kTmaSlowStore;
  }
  const double multiply = steps * TmaStepClocks(c, p, plan);
  if (c.ping_pong) {  // a store runs under the next tile's products, but for the last
    return kTmaLatencyClocks + turns * std::max(multiply, (multiply + store) / 2) + store;
  }
  return kTmaLatencyClocks + turns * (multiply + store);
}

// Of the kernel that adds up the parts.
double SumSeconds(const GemmProblem& p, const Plan& plan) {
  if (plan.split_k == 1) return 0;
  const double elements = 1.0 * p.m * p.n * static_cast<double>(p.batch);
  return kSumSeconds + 2.0 * elements * 4 * plan.split_k / kSumBytesPerSecond;
}

double UniqueBytes(const GemmProblem& p) {
  const auto copies = [&p](const MatrixLayout& layout) {
    return layout.batch_stride == 0 ? 1.0 : static_cast<double>(p.batch);
  };
  const double a = 1.0 * p.m * p.k * SizeOf(p.type_a) * copies(p.a);
  const double b = 1.0 * p.k * p.n * SizeOf(p.type_b) * copies(p.b);
  const double d = 1.0 * p.m * p.n * SizeOf(p.type_d) * static_cast<double>(p.batch);
  return a + b + d + (p.reads_c() ? d : 0);
}

double TmaSeconds(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                  const DeviceTraits& traits) {
  const double clocks = TmaClocks(c, p, plan, traits);
  const double floor = UniqueBytes(p) / traits.hbm_bytes_per_second;
  return kTmaLaunchSeconds + SmoothMaxOfLaunch(clocks / traits.clock_hz, floor) +
         (plan.pair ? kPairSeconds : 0) + SumSeconds(p, plan);
}

}  // namespace

TileShape ShapeOf(const KernelConfig& c, const GemmProblem& p) {
  const int64_t m_tiles = CeilDiv(p.m, c.block_m), n_tiles = CeilDiv(p.n, c.block_n);
  return {m_tiles, n_tiles, CeilDiv(p.k, c.block_k), m_tiles * n_tiles * p.batch};
}

double PredictSeconds(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                      const DeviceTraits& traits) {
  if (c.family == Family::kTmaWgmma) return TmaSeconds(c, p, plan, traits);
  const TileShape shape = ShapeOf(c, p);
  const int stages = plan.stages, resident = plan.resident_blocks;
  const double floor = UniqueBytes(p) / traits.hbm_bytes_per_second;
  const int64_t wave = int64_t{resident} * traits.sm_count;
  const int64_t full_waves = shape.tiles / wave, rest = shape.tiles % wave;
  double clocks = static_cast<double>(full_waves) * WaveClocks(c, p, shape, stages, resident);
  if (rest > 0) {
    const auto rest_resident = static_cast<double>(CeilDiv(rest, traits.sm_count));
    clocks += WaveClocks(c, p, shape, stages, rest_resident);
  }
  return kLaunchSeconds + std::max(clocks / traits.clock_hz, floor);
}

int64_t StepsOfBlock(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                     const DeviceTraits& traits) {
  const TileShape shape = ShapeOf(c, p);
  if (c.family != Family::kTmaWgmma) return shape.k_tiles;
  return TurnsOfBlock(c, p, plan, traits) * CeilDiv(shape.k_tiles, plan.split_k);
}

}  // namespace gemmd
