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
constexpr double kTmaLaunchSeconds = 1.56e-6;  // and its first panels
constexpr double kTmaRingLatencyClocks = 946;  // L within the ring
constexpr double kWgmmaFlopsPerClock = 3101;
constexpr double kTmaStepClocks = 389;         // a step never takes less than this
constexpr double kTmaStepClocksPer64K = 88.1;  // and this for each 64 values of K
constexpr double kTmaStoreClocks = 37.4;
constexpr double kTmaStoreBytesPerClock = 16.3;
constexpr double kPartLines = 1.21;  // for a byte of rows of a tile that are not whole lines of D
// A box is asked for row by row, 128 bytes at a time. What a row counts for beyond that: one that
// lies in two lines; one of less than a line, along K, that shares a sector of 32 bytes with the
// next, to the SM and to the L2 cache.
constexpr double kStraddlingRow = 1.87;
constexpr double kSharedSector = 1.53;
constexpr double kSharedSectorOfL2 = 11.8;
constexpr double kL2RowsPerClock = 0.574;  // of the L2 cache, an SM that there is
// Panels into one SM. Two SMs share a way to the L2 cache and to memory; blocks come to every
// other SM first, so up to half as many as SMs have one each to themselves.
constexpr double kTmaBytesPerClock = 52.3;
constexpr double kAloneGain = 1.59;
constexpr double kTwoSmsBytesPerSecond = 106e9;  // from memory
// A narrow panel is a few lines of L2 that all blocks ask for, row by row: in every step, and at
// the start, when all are in the same one.
constexpr double kClocksPerAsk = 1.37;
constexpr double kClocksPerFirstAsk = 3.33;
// Pairs: each waits for the other now and then.
constexpr double kPairSeconds = 0.196e-6;
constexpr double kPairStep = 1.04;
constexpr double kPairStream = 1.06;
// Device memory: what it delivers.
constexpr double kReachedBandwidth = 0.89;  // of the copy rate
constexpr double kWrittenByte = 1.07;       // takes as long as so many that are read
// Parts: the second kernel, and what reads and writes them.
constexpr double kSumSeconds = 1.39e-6;
constexpr double kSumBytesPerSecond = 3.88e12;
// What a launch that starts early saves where the one before it leaves half of the SMs free; and
// both kernels of a split do.
constexpr double kRoomSeconds = 0.371e-6;
constexpr double kRoomOfPartsSeconds = 85.5e-9;

// The GEMV kernel: what a round of blocks takes beside the stream, how much of the copy rate the
// stream gets, which is read alone, and what one SM can multiply by one vector of it.
constexpr double kGemvRoundSeconds = 2.98e-6;
constexpr double kGemvBlockSeconds = 8.92e-9;  // and each block of the first round
constexpr double kGemvBandwidthShare = 1.28;
constexpr double kGemvBytesPerClock = 49.3;
// Threads that share out K walk it in steps, which wait for their loads: of 256 values a warp where
// K is contiguous, else of one value a thread.
constexpr double kGemvContiguousStepSeconds = 0.135e-6;
constexpr double kGemvStridedStepSeconds = 79e-9;
// Added where vectors with K across their rows are turned around first.
constexpr double kGemvTurnSecondsPerK = 0.342e-9;

// What was fitted to an H200, for a device that calibration found to differ from one. Measured
// figures and fitted ones are not the same (a ring that only loads is not one under products), but
// both should change alike from device to device.
RingCalibration Scaled(const RingCalibration& fitted, const RingCalibration& device,
                       const RingCalibration& h200) {
  return {
      .latency_clocks = fitted.latency_clocks * (device.latency_clocks / h200.latency_clocks),
      .bytes_per_clock = fitted.bytes_per_clock * (device.bytes_per_clock / h200.bytes_per_clock),
      .flops_per_clock = fitted.flops_per_clock * (device.flops_per_clock / h200.flops_per_clock)};
}

RingCalibration CpAsyncRing(const DeviceTraits& traits) {
  return Scaled({.latency_clocks = kPanelLatencyClocks,
                 .bytes_per_clock = kSmemBytesPerClock,
                 .flops_per_clock = kMmaFlopsPerClock},
                traits.calibration.cp_async, kH200Calibration.cp_async);
}

RingCalibration TmaRing(const DeviceTraits& traits) {
  const RingCalibration& h200 = *kH200Calibration.tma;
  return Scaled({.latency_clocks = kTmaRingLatencyClocks,
                 .bytes_per_clock = kTmaBytesPerClock,
                 .flops_per_clock = kWgmmaFlopsPerClock},
                traits.calibration.tma.value_or(h200), h200);
}

// C of the formula in cost_model.h.
double StepClocks(const KernelConfig& c, const RingCalibration& ring) {
  const double flops = 2.0 * c.block_m * c.block_n * c.block_k;
  if (c.family == Family::kCpAsyncSimt) return flops / kSimtFlopsPerClock;
  // Every warp reads its own rows of A and columns of B; the panel is written once.
  const double elements =
      1.0 * (c.block_m * c.warps_n + c.block_n * c.warps_m + c.block_m + c.block_n) * c.block_k;
  return flops / ring.flops_per_clock + elements * ElementBytes(c) / ring.bytes_per_clock;
}

double WaveClocks(const KernelConfig& c, const GemmProblem& p, const TileShape& shape, int stages,
                  double resident, const RingCalibration& ring) {
  const double step = StepClocks(c, ring);
  const double period =
      stages == 1 ? std::max(resident * step + kStepOverheadClocks, ring.latency_clocks + step)
                  : std::max({resident * step, step + kStepOverheadClocks,
                              ring.latency_clocks / (stages - 1)});
  const double tile_bytes = 1.0 * c.block_m * c.block_n * SizeOf(p.type_d);
  const double epilogue = resident * tile_bytes * (p.reads_c() ? 2 : 1) / kEpilogueBytesPerClock;
  return ring.latency_clocks + static_cast<double>(shape.k_tiles) * period + epilogue;
}

// The larger of two bounds, but not sharply: near the edge, easing the smaller one still pays. How
// sharply depends on what meets. Where they are far apart, roots are not worth their time.
double SharpMax(double a, double b) {  // products and panels of a step: (a^16 + b^16)^(1/16)
  const double most = std::max(a, b), ratio = std::min(a, b) / most;
  if (ratio < 0.5) return most;
  const double square = ratio * ratio, fourth = square * square, eighth = fourth * fourth;
  return most * std::sqrt(std::sqrt(std::sqrt(std::sqrt(1 + eighth * eighth))));
}
// A step and a panel's latency; a whole launch and what memory delivers meanwhile: exponent 6.
double SmoothMax(double a, double b) {
  const double most = std::max(a, b), ratio = std::min(a, b) / most;
  if (ratio < 0.15) return most;
  const double cube = ratio * ratio * ratio;
  return most * std::cbrt(std::sqrt(1 + cube * cube));
}
// The same lines through the L2 cache and from or to device memory: exponent 3.
double SoftMax(double a, double b) {
  const double most = std::max(a, b), ratio = std::min(a, b) / most;
  return ratio < 0.02 ? most : most * std::cbrt(1 + ratio * ratio * ratio);
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

// Parts that the busiest of the blocks computes, one after another.
int64_t TurnsOf(int64_t parts, const Plan& plan, const DeviceTraits& traits) {
  return CeilDiv(parts, std::min(parts, BlocksAtOnce(plan, traits)));
}

// K steps of the longest part.
int64_t StepsOfPart(const TileShape& shape, const Plan& plan) {
  return CeilDiv(shape.k_tiles, plan.split_k);
}

// What a row of a box counts for, of an operand stored like that.
double LinesOfRow(const MatrixLayout& layout, int64_t element_bytes, bool k_across,
                  double shared_sector) {
  const int64_t pitch = RowPitchBytes(layout.cols * element_bytes);
  // Rows begin at multiples of `unit` within lines, at each of them as often.
  const int64_t unit = std::min(pitch & -pitch, int64_t{128});
  const int64_t straddling = std::min(pitch, int64_t{128}) - unit;
  const bool shares_sectors = !k_across && pitch < 128 && pitch % 32 != 0;
  return 1 + kStraddlingRow * static_cast<double>(straddling) / 128 +
         (shares_sectors ? shared_sector : 0);
}

// Of a panel of op(A) or op(B), along M or N. Those beyond the operand are not, but where K is
// across the stored row, whole lines of 64 are.
double RowsFetched(int block, int64_t extent, bool k_across) {
  const int64_t rows = std::min<int64_t>(block, extent);
  return static_cast<double>(k_across ? CeilDiv(rows, 64) * 64 : rows);
}

// How often a line of an operand is asked for when `askers` blocks want the same rows of it: once
// for each row that begins in it, and twice where the boxes of such rows reach into the next.
double AsksPerLine(const MatrixLayout& layout, int64_t element_bytes, bool k_across,
                   double askers) {
  const int64_t pitch = RowPitchBytes(layout.cols * element_bytes);
  const double rows =
      std::clamp(128 / static_cast<double>(pitch), 1.0, static_cast<double>(layout.rows));
  const bool reaches = k_across && pitch % 128 != 0;
  return askers * rows * (reaches ? 2 : 1);
}

// What a launch of the TMA kernel comes to. Blocks compute parts in turns; in the last one some may
// have none.
struct TmaLaunch {
  const KernelConfig& c;
  const GemmProblem& p;
  const Plan& plan;
  const DeviceTraits& traits;
  const RingCalibration ring;
  const TileShape shape;
  const int64_t parts;   // of tiles
  const int64_t blocks;  // that run
  // Of the longest part.
  const double steps;
  const double store_bytes;                 // of a part
  const double asks;                        // per line, of the operand that is asked for most
  const double step_rows, step_rows_of_l2;  // of boxes, that a block asks for in a step

  TmaLaunch(const KernelConfig& config, const GemmProblem& problem, const Plan& its_plan,
            const DeviceTraits& its_traits)
      : c(config),
        p(problem),
        plan(its_plan),
        traits(its_traits),
        ring(TmaRing(its_traits)),
        shape(ShapeOf(config, problem)),
        parts(PartsOf(config, shape, its_plan)),
        blocks(std::min(parts, BlocksAtOnce(its_plan, its_traits))),
        steps(static_cast<double>(StepsOfPart(shape, its_plan))),
        store_bytes(1.0 * config.block_m * config.block_n * ResultBytes() *
                    (problem.reads_c() ? 2 : 1) * PartLines()),
        asks(Asks()),
        step_rows(RowsOfStep(kSharedSector)),
        step_rows_of_l2(RowsOfStep(kSharedSectorOfL2)) {}

  int64_t ResultBytes() const {
    return plan.split_k > 1 ? int64_t{sizeof(float)} : static_cast<int64_t>(SizeOf(p.type_d));
  }
  double PartLines() const { return c.block_n * ResultBytes() % 128 != 0 ? kPartLines : 1; }

  int64_t turns() const { return TurnsOf(parts, plan, traits); }
  int64_t blocks_of_last_turn() const { return parts - (turns() - 1) * blocks; }

  bool shares_a() const { return plan.pair && !PairsAlongM(c); }
  bool shares_b() const { return plan.pair && PairsAlongM(c); }

  // Whether each of so many blocks has a pair of SMs to itself.
  bool HavePairsOfSms(int64_t at_once) const {
    return !plan.pair && 2 * at_once <= traits.sm_count;
  }

  // Parts of one tile have other steps.
  double Asks() const {
    const double at_once = static_cast<double>(blocks) / plan.split_k;
    const auto askers = [&](int64_t tiles, bool shared) {
      return at_once / static_cast<double>(std::min(tiles, blocks)) / (shared ? 2 : 1);
    };
    const int64_t element = ElementBytes(c);
    return std::max(AsksPerLine(p.a, element, p.op_a == Op::kT, askers(shape.m_tiles, shares_a())),
                    AsksPerLine(p.b, element, p.op_b == Op::kN, askers(shape.n_tiles, shares_b())));
  }

  double RowsOfStep(double shared_sector) const {
    const int64_t element = ElementBytes(c);
    const bool a_k_across = p.op_a == Op::kT, b_k_across = p.op_b == Op::kN;
    const double a = RowsFetched(c.block_m, p.m, a_k_across) *
                     LinesOfRow(p.a, element, a_k_across, shared_sector) / (shares_a() ? 2 : 1);
    const double b = RowsFetched(c.block_n, p.n, b_k_across) *
                     LinesOfRow(p.b, element, b_k_across, shared_sector) / (shares_b() ? 2 : 1);
    return (a + b) * static_cast<double>(c.block_k * element) / 128;
  }

  // Of the L2 cache, for `count` parts of tiles.
  double L2Seconds(int64_t count) const {
    const double rows = static_cast<double>(count) * steps * step_rows_of_l2;
    return rows / (kL2RowsPerClock * traits.sm_count * traits.clock_hz);
  }

  double StepClocks(int64_t at_once) const {
    double step =
        std::max({2.0 * c.block_m * c.block_n * c.block_k / ring.flops_per_clock,
                  kTmaStepClocks + kTmaStepClocksPer64K * c.block_k / 64, kClocksPerAsk * asks});
    double bytes = 128 * step_rows;
    if (c.ping_pong) bytes += store_bytes / steps;
    step =
        SharpMax(step, bytes / (ring.bytes_per_clock * (HavePairsOfSms(at_once) ? kAloneGain : 1)));
    if (plan.pair) step *= kPairStep;
    if (plan.stages == 1) return ring.latency_clocks + step;
    // The last step's store takes longer than the panels that it hides (StagesOfUse).
    const int in_advance = steps == 1 ? 1 : plan.stages - 1;
    return SmoothMax(step, ring.latency_clocks / in_advance);
  }

  // Of `count` turns of so many blocks.
  double Clocks(int64_t count, int64_t at_once, bool last) const {
    const double multiply = steps * StepClocks(at_once);
    const double store = kTmaStoreClocks + store_bytes / kTmaStoreBytesPerClock;
    double turn = multiply + store, rest = 0;
    if (c.ping_pong && turns() > 1) {  // a store runs under the next tile's products
      turn = std::max(multiply, turn / 2);
      if (last) rest = store;  // but the last
    }
    if (last) rest += kClocksPerFirstAsk * asks;
    return static_cast<double>(count) * turn + rest;
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

// What device memory needs to bring so many bytes to so many SMs at once.
double StreamSeconds(double bytes, int64_t sms, bool have_pairs_of_sms,
                     const DeviceTraits& traits) {
  const double of_one = kTwoSmsBytesPerSecond / (have_pairs_of_sms ? 1 : 2);
  return bytes / std::min(kReachedBandwidth * traits.hbm_bytes_per_second,
                          of_one * static_cast<double>(sms));
}

// All turns but the last, and that one, in which fewer blocks draw from memory.
double TurnsSeconds(const TmaLaunch& launch) {
  const GemmProblem& p = launch.p;
  const double written = 1.0 * p.m * p.n * static_cast<double>(p.batch) * SizeOf(p.type_d);
  const double bytes = (UniqueBytes(p) + (kWrittenByte - 1) * launch.PartLines() * written) *
                       (launch.plan.pair ? kPairStream : 1);
  const auto stream = [&](int64_t parts, int64_t at_once) {
    const double share = static_cast<double>(parts) / static_cast<double>(launch.parts);
    const double memory =
        StreamSeconds(bytes * share, at_once, launch.HavePairsOfSms(at_once), launch.traits);
    return SoftMax(memory, launch.L2Seconds(parts));
  };
  const auto clocks = [&](int64_t count, int64_t at_once, bool last) {
    return launch.Clocks(count, at_once, last) / launch.traits.clock_hz;
  };
  const int64_t before = launch.turns() - 1, last = launch.blocks_of_last_turn();
  if (before == 0) return SmoothMax(clocks(1, last, true), stream(last, last));
  return SmoothMax(clocks(before, launch.blocks, false),
                   stream(launch.parts - last, launch.blocks)) +
         SmoothMax(clocks(1, last, true), stream(last, last));
}

double TmaSeconds(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                  const DeviceTraits& traits) {
  const TmaLaunch launch(c, p, plan, traits);
  const double seconds = kTmaLaunchSeconds + TurnsSeconds(launch) + (plan.pair ? kPairSeconds : 0) +
                         SumSeconds(p, plan);
  const bool leaves_room = 2 * launch.blocks <= traits.sm_count && seconds < kEarlyStartSeconds;
  if (!leaves_room) return seconds;
  return seconds - (plan.split_k > 1 ? kRoomOfPartsSeconds : kRoomSeconds);
}

double GemvSeconds(const GemmProblem& p, const DeviceTraits& traits) {
  const GemvShape shape = GemvShapeOf(p, traits.sm_count);
  const auto batch = static_cast<double>(p.batch), k = static_cast<double>(p.k);
  const double blocks = static_cast<double>(shape.blocks()) * batch;
  const double bytes = static_cast<double>(shape.lines) * k * SizeOf(p.type_a) * batch;
  const double sms = std::min<double>(blocks, traits.sm_count);
  const double rounds = std::ceil(blocks / (1.0 * traits.sm_count * shape.blocks_per_sm()));
  const int vectors = shape.vectors_of_kernel();
  const double stream =
      std::max(UniqueBytes(p) / (kGemvBandwidthShare * traits.hbm_bytes_per_second),
               bytes * vectors / (sms * kGemvBytesPerClock * traits.clock_hz));
  const double step_seconds =
      shape.matrix_k_contiguous ? kGemvContiguousStepSeconds / (256 * shape.warps_per_line)
                                : kGemvStridedStepSeconds * shape.lanes_across / (32 * kGemvWarps);
  const double steps = k * step_seconds;
  const bool turns = shape.matrix_k_contiguous && !shape.vectors_k_contiguous;
  const double turn = turns ? kGemvTurnSecondsPerK * k : 0;
  const double starts = kGemvBlockSeconds * std::min(blocks, 2.0 * traits.sm_count);
  return rounds * kGemvRoundSeconds + starts + turn + SmoothMax(stream, steps);
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
  const int64_t sms = std::min<int64_t>(shape.tiles, traits.sm_count);
  const double floor = StreamSeconds(UniqueBytes(p), sms, 2 * sms <= traits.sm_count, traits);
  const int64_t wave = int64_t{resident} * traits.sm_count;
  const int64_t full_waves = shape.tiles / wave, rest = shape.tiles % wave;
  const RingCalibration ring = CpAsyncRing(traits);
  double clocks = static_cast<double>(full_waves) * WaveClocks(c, p, shape, stages, resident, ring);
  if (rest > 0) {
    const auto rest_resident = static_cast<double>(CeilDiv(rest, traits.sm_count));
    clocks += WaveClocks(c, p, shape, stages, rest_resident, ring);
  }
  return kLaunchSeconds + SmoothMax(clocks / traits.clock_hz, floor);
}

int64_t StepsOfBlock(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                     const DeviceTraits& traits) {
  const TileShape shape = ShapeOf(c, p);
  if (c.family != Family::kTmaWgmma) return shape.k_tiles;
  return TurnsOf(PartsOf(c, shape, plan), plan, traits) * StepsOfPart(shape, plan);
}

int64_t StagesOfUse(const KernelConfig& c, const GemmProblem& p, const Plan& plan,
                    const DeviceTraits& traits) {
  const int64_t steps = StepsOfBlock(c, p, plan, traits);
  const bool one_step_parts = StepsOfPart(ShapeOf(c, p), plan) == 1;
  return c.family == Family::kTmaWgmma && one_step_parts ? std::min<int64_t>(steps, 2) : steps;
}

}  // namespace gemmd
