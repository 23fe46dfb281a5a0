// What a plan costs: device time, predicted.
//
// Formula. Let C be the clocks that a K step costs the SM's issue slots (products, and the reads of
// shared memory that feed them), O what a step costs a block that is alone (its barrier and first
// reads), L the latency of a panel, S the stages and R the blocks resident on an SM. A step of all
// R blocks then takes
//     P = max(R C + O, L + C)             for S = 1: a panel is loaded, waited for, then used
//     P = max(R C, C + O, L / (S - 1))    for S > 1: a panel is asked for S - 1 steps before its
//     use
// and a wave of R blocks an SM takes L + k_tiles P + epilogue. A launch is its full waves and the
// last, thinner one, but never less than its unique bytes take from device memory. R falls as S
// grows, which is how a stage that costs residency pays for that.
//
// The TMA kernel has one block an SM, whose step takes L + C for S = 1 and about the larger of C
// and L / (S - 1) above; the next tile's panels are already on their way when a tile ends, so L is
// paid once a launch. In ping-pong a tile's store is paid once a launch too.
// Its turns, all blocks computing a tile each, are never shorter than their share of the unique
// bytes takes; the last one, in which fewer blocks may draw on memory, is predicted by itself.
//
// The GEMV kernel takes so much for each round of resident blocks, and what its bytes take, from
// device memory at most of its bandwidth or into the SMs that have a block, or the steps in which
// its threads walk K.
//
// Beside that it knows what a step of a small tile takes at least, what a pair of blocks saves and
// loses, what panels cost that all blocks ask for, that two SMs share a way to the L2 cache and to
// memory, and what it costs to add up the parts of a split-K. All constants are fitted to measured
// plans of an H200 (gemmd_bench plans, sweep and selection). L, the bandwidth into an SM and the
// FLOPs of its tensor cores are scaled by what calibration finds of the device
// (kernels/core/calibration.h).
#pragma once

#include <cstdint>

#include "kernels/core/device_traits.h"
#include "kernels/core/gemm_types.h"
#include "kernels/plan/plan.h"

namespace gemmd {

struct TileShape {
  int64_t m_tiles = 0, n_tiles = 0, k_tiles = 0;
  int64_t tiles = 0;  // over the batch
};
// Precondition: the kernel has tiles.
TileShape ShapeOf(const KernelConfig& config, const GemmProblem& problem);

// Launches shorter than this start early. It saves about a microsecond; but the blocks of a launch
// that starts early lie unevenly over the device, which slows those that wait for memory.
inline constexpr double kEarlyStartSeconds = 40e-6;

// Seconds from the end of the launch before to that of this one. Reads row, stages, split_k,
// pair and resident_blocks of the plan; `config` is its row's.
double PredictSeconds(const KernelConfig& config, const GemmProblem& problem, const Plan& plan,
                      const DeviceTraits& traits);

// K steps that one block walks: no more than that can ever be in its ring. Precondition: the kernel
// has tiles.
int64_t StepsOfBlock(const KernelConfig& config, const GemmProblem& problem, const Plan& plan,
                     const DeviceTraits& traits);

// Stages that can help, up to the steps of a block. Where each part of a tile is one step, its
// panels arrive while the last part is stored: the next one's in advance are enough, and more only
// crowd the L2 cache.
int64_t StagesOfUse(const KernelConfig& config, const GemmProblem& problem, const Plan& plan,
                    const DeviceTraits& traits);

}  // namespace gemmd
