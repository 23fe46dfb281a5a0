#include "kernels/plan/cost_model.h"

#include <algorithm>
#include <cmath>

#include "kernels/plan/gemv_shape.h"

namespace gemmd {
namespace {

// Constants of the model, in clocks of the highest SM clock. Fitted to stage sweeps and to plans of
// random shapes on an H200 (kernels/README.md).
constexpr double kLaunchSeconds = 2.5e-6;
constexpr double kPanelLatencyClocks = 1370;  // L: asked for to readable, under load
constexpr double kStepOverheadClocks = 300;   // O: barrier and first fragments
constexpr double kMmaFlopsPerClock = 2100;    // tensor issue alone
constexpr double kSmemBytesPerClock = 216;    // what fragments and panels add to it
constexpr double kSimtFlopsPerClock = 150;
constexpr double kEpilogueBytesPerClock = 11;  // of D, and again of C

// The same for the TMA kernel, which is alone on its SM and fetches the next tile's first panels
// while it stores the last.
constexpr double kTmaLaunchSeconds = 1.51e-6;   // and its first panels
constexpr double kTmaRingLatencyClocks = 1101;  // L within the ring
constexpr double kWgmmaFlopsPerClock = 3592;
constexpr double kTmaStepClocks = 386;         // a step never takes less than this
constexpr double kTmaStepClocksPer64K = 10.6;  // and this for each 64 values of K
constexpr double kTmaBytesPerClock = 59.9;     // panels into one SM
constexpr double kUnalignedRows = 2.12;
constexpr double kStoreAmongPanels = 1.06;  // what a byte of a store under products costs of that
constexpr double kTmaStoreClocks = 452;
constexpr double kTmaStoreBytesPerClock = 14.5;
// A narrow panel with K across its rows is a few lines of L2 that all blocks ask for, row by row.
constexpr double kClocksPerAskedLine = 1.63;
// Pairs: each waits for the other now and then.
constexpr double kPairSeconds = 0.12e-6;
constexpr double kPairStep = 1.030;
constexpr double kPairStream = 1.036;
constexpr double kPairStepInTurns = 1.057;  // in ping-pong
// Device memory: what it delivers in long, to one SM, and in the beginning.
constexpr double kReachedBandwidth = 0.968;  // of the copy rate
constexpr double kSmBytesPerSecond = 67.9e9;
constexpr double kDrawOfPairs = 0.951;  // times that, since a shared panel is drawn once
constexpr double kRampSeconds = 0.88e-6;
// Parts: the second kernel, and what reads and writes them.
constexpr double kSumSeconds = 1.61e-6;
constexpr double kSumBytesPerSecond = 3.13e12;
// What a launch that starts early saves where the one before it leaves half of the SMs free; and
// both kernels of a split do.
constexpr double kRoomSeconds = 0.57e-6;
constexpr double kRoomOfPartsSeconds = 0.97e-6;

// The GEMV kernel: what its start and end take beside the stream, how much of the bandwidth the
// stream gets, and what one SM can multiply by one vector of it.
constexpr double kGemvRoundSeconds = 3.2e-6;  // of blocks, at least
// Added to that where vectors with K across their rows are turned around first.
constexpr double kGemvTurnSeconds = 0.9e-6;
constexpr double kGemvTurnSecondsPerK = 0.5e-9;
constexpr double kGemvLaunchSeconds = 1.5e-6;
constexpr double kGemvBandwidthShare = 0.9;
constexpr double kGemvBytesPerClock = 40;
constexpr double kGemvGatherBytes = 16;  // that a block reads for a value of K across the vectors

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
// sharply depends on what meets: products and panels of one step, the step and a panel's latency,
// or a whole launch and what device memory can deliver in that time.
double SmoothMaxOfPanels(double a, double b) {  // (a^16 + b^16)^(1/16), scaled to stay finite
  const double most = std::max(a, b), ratio = std::min(a, b) / most;
  const double square = ratio * ratio, fourth = square * square, eighth = fourth * fourth;
  return most * std::sqrt(std::sqrt(std::sqrt(std::sqrt(1 + eighth * eighth))));
}
double SmoothMaxOfStep(double a, double b) {  // the same with exponent 6
  const double most = std::max(a, b), ratio = std::min(a, b) / most;
  const double cube = ratio * ratio * ratio;
  return most * std::cbrt(std::sqrt(1 + cube * cube));
}
double SmoothMaxOfLaunch(double a, double b) {  // the same with exponent 3
  const double most = std::max(a, b), ratio = std::min(a, b) / most;
  return most * std::cbrt(1 + ratio * ratio * ratio);
}

// Blocks of the TMA kernel that can run at once, one an SM.
int64_t BlocksAtOnce(const Plan& plan, const DeviceTraits& traits) {
  return plan.pair ? 2 * traits.resident_pairs : traits.sm_count;
}

// Parts of tiles, with those of idle partners: the last of an odd number of tiles has one.
int64_t PartsOf(const KernelConfig& c, const TileShape& shape, const Plan& plan) {
  int64_t tiles = shape.tiles;
  if (plan.pair) {
    const int64_t along = PairsAlongM(c) ? shape.m_tiles : shape.n_tiles;
    tiles = tiles / along * ((along + 1) / 2 * 2);
  }
  return tiles * plan.split_k;
}

// What a panel's bytes count for where rows do not begin at cache lines: a box touches two a row.
double LinesPerRow(const MatrixLayout& layout, int64_t element_bytes) {
  return RowPitchBytes(layout.cols * element_bytes) % 128 == 0 ? 1.0 : kUnalignedRows;
}

// Of a panel of op(A) or op(B), along M or N. Those beyond the operand are not, but where K is
// across the stored row, whole lines of 64 are.
double RowsFetched(int block, int64_t extent, bool k_across) {
  const int64_t rows = std::min<int64_t>(block, extent);
  return static_cast<double>(k_across ? CeilDiv(rows, 64) * 64 : rows);
}

// How often each line of a panel is asked for in a step, by blocks that all need the same rows.
double AsksPerLine(int block, int64_t extent, bool shared, int64_t blocks) {
  constexpr double kLineBytes = 128;
  const double asked = std::max(kLineBytes, 2.0 * block) / (2.0 * static_cast<double>(extent));
  return asked * static_cast<double>(blocks) / (shared ? 2 : 1);
}

// What a launch of the TMA kernel comes to.
struct TmaLaunch {
  const KernelConfig& c;
  const GemmProblem& p;
  const Plan& plan;
  const TileShape shape;
  const int64_t parts;   // of tiles
  const int64_t blocks;  // that run
  // Of the longest part.
  const double steps;
  const double store_bytes;  // of a part

  TmaLaunch(const KernelConfig& config, const GemmProblem& problem, const Plan& its_plan,
            const DeviceTraits& traits)
      : c(config),
        p(problem),
        plan(its_plan),
        shape(ShapeOf(config, problem)),
        parts(PartsOf(config, shape, its_plan)),
        blocks(std::min(parts, BlocksAtOnce(its_plan, traits))),
        steps(static_cast<double>(CeilDiv(shape.k_tiles, its_plan.split_k))),
        store_bytes(1.0 * config.block_m * config.block_n *
                    (its_plan.split_k > 1 ? 4.0 : static_cast<double>(SizeOf(problem.type_d))) *
                    (problem.reads_c() ? 2 : 1)) {}

  // Parts that the busiest block computes, one after another.
  int64_t turns() const { return CeilDiv(parts, blocks); }

  double StepClocks() const {
    const bool shares_a = plan.pair && !PairsAlongM(c), shares_b = plan.pair && PairsAlongM(c);
    double step = std::max(2.0 * c.block_m * c.block_n * c.block_k / kWgmmaFlopsPerClock,
                           kTmaStepClocks + kTmaStepClocksPer64K * c.block_k / 64);
    const int64_t askers = CeilDiv(blocks, plan.split_k);  // the other parts have other steps
    if (p.op_a == Op::kT) {
      step = std::max(step, kClocksPerAskedLine * AsksPerLine(c.block_m, p.m, shares_a, askers));
    }
    if (p.op_b == Op::kN) {
      step = std::max(step, kClocksPerAskedLine * AsksPerLine(c.block_n, p.n, shares_b, askers));
    }
    const int64_t element = ElementBytes(c);
    const double rows_a = RowsFetched(c.block_m, p.m, p.op_a == Op::kT);
    const double rows_b = RowsFetched(c.block_n, p.n, p.op_b == Op::kN);
    double bytes = (rows_a * LinesPerRow(p.a, element) / (shares_a ? 2 : 1) +
                    rows_b * LinesPerRow(p.b, element) / (shares_b ? 2 : 1)) *
                   c.block_k * static_cast<double>(element);
    if (c.ping_pong) bytes += kStoreAmongPanels * store_bytes / steps;
    step = SmoothMaxOfPanels(step, bytes / kTmaBytesPerClock);
    if (plan.pair) step *= c.ping_pong ? kPairStepInTurns : kPairStep;
    return plan.stages == 1 ? kTmaRingLatencyClocks + step
                            : SmoothMaxOfStep(step, kTmaRingLatencyClocks / (plan.stages - 1));
  }

  double Clocks() const {
    const auto count = static_cast<double>(turns());
    const double multiply = steps * StepClocks();
    const double store = kTmaStoreClocks + store_bytes / kTmaStoreBytesPerClock;
    if (c.ping_pong &&
        count > 1) {  // a store runs under the next tile's products, but for the last
      return count * std::max(multiply, (multiply + store) / 2) + store;
    }
    return count * (multiply + store);
  }
};

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

// What device memory needs for a launch on so many SMs at once.
double StreamSeconds(const GemmProblem& p, double sms, const DeviceTraits& traits) {
  const double bandwidth =
      std::min(kReachedBandwidth * traits.hbm_bytes_per_second, kSmBytesPerSecond * sms);
  const double seconds = UniqueBytes(p) / bandwidth;
  return seconds + std::min(seconds, kRampSeconds);
}

double TmaSeconds(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                  const DeviceTraits& traits) {
  const TmaLaunch launch(c, p, plan, traits);
  const double sms = static_cast<double>(launch.blocks) * (plan.pair ? kDrawOfPairs : 1);
  const double seconds =
      kTmaLaunchSeconds +
      SmoothMaxOfLaunch(launch.Clocks() / traits.clock_hz,
                        StreamSeconds(p, sms, traits) * (plan.pair ? kPairStream : 1)) +
      (plan.pair ? kPairSeconds : 0) + SumSeconds(p, plan);
  const bool leaves_room = 2 * launch.blocks <= traits.sm_count && seconds < kEarlyStartSeconds;
  if (!leaves_room) return seconds;
  return seconds - (plan.split_k > 1 ? kRoomOfPartsSeconds : kRoomSeconds);
}

double GemvSeconds(const GemmProblem& p, const DeviceTraits& traits) {
  const GemvShape shape = GemvShapeOf(p, traits.sm_count);
  const auto batch = static_cast<double>(p.batch), k = static_cast<double>(p.k);
  const double blocks = static_cast<double>(shape.blocks()) * batch;
  double bytes = static_cast<double>(shape.lines) * k * SizeOf(p.type_a) * batch;
  if (!shape.vectors_k_contiguous) bytes += blocks * k * kGemvGatherBytes;
  const double sms = std::min<double>(blocks, traits.sm_count);
  const double rounds = std::ceil(blocks / (1.0 * traits.sm_count * shape.blocks_per_sm()));
  const double stream =
      std::max(UniqueBytes(p) / (kGemvBandwidthShare * traits.hbm_bytes_per_second),
               bytes * shape.vectors_of_kernel() / (sms * kGemvBytesPerClock * traits.clock_hz));
  const bool turns = shape.matrix_k_contiguous && !shape.vectors_k_contiguous;
  const double turn = turns ? kGemvTurnSeconds + kGemvTurnSecondsPerK * k : 0;
  return std::max(rounds * (kGemvRoundSeconds + turn), kGemvLaunchSeconds + stream);
}

}  // namespace

TileShape ShapeOf(const KernelConfig& c, const GemmProblem& p) {
  const int64_t m_tiles = CeilDiv(p.m, c.block_m), n_tiles = CeilDiv(p.n, c.block_n);
  return {m_tiles, n_tiles, CeilDiv(p.k, c.block_k), m_tiles * n_tiles * p.batch};
}

double PredictSeconds(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                      const DeviceTraits& traits) {
  if (c.family == Family::kTmaWgmma) return TmaSeconds(c, p, plan, traits);
  if (c.family == Family::kGemv) return GemvSeconds(p, traits);
  const TileShape shape = ShapeOf(c, p);
  const int stages = plan.stages, resident = plan.resident_blocks;
  const auto sms = static_cast<double>(std::min<int64_t>(shape.tiles, traits.sm_count));
  const double floor = StreamSeconds(p, sms, traits);
  const int64_t wave = int64_t{resident} * traits.sm_count;
  const int64_t full_waves = shape.tiles / wave, rest = shape.tiles % wave;
  double clocks = static_cast<double>(full_waves) * WaveClocks(c, p, shape, stages, resident);
  if (rest > 0) {
    const auto rest_resident = static_cast<double>(CeilDiv(rest, traits.sm_count));
    clocks += WaveClocks(c, p, shape, stages, rest_resident);
  }
  return kLaunchSeconds + SmoothMaxOfLaunch(clocks / traits.clock_hz, floor);
}

int64_t StepsOfBlock(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                     const DeviceTraits& traits) {
  const TileShape shape = ShapeOf(c, p);
  if (c.family != Family::kTmaWgmma) return shape.k_tiles;
  return TmaLaunch(c, p, plan, traits).turns() * CeilDiv(shape.k_tiles, plan.split_k);
}

}  // namespace gemmd
