// What the warps of a device's kernels wait for, by the hardware's own samples of their program
// counters. Part of the seam: a backend has a sampler or says why not.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/plan/kernel_table.h"

namespace gemmd {

// Whose code was sampled: a row of kKernelTable, or one of these.
inline constexpr int kSumPartsKernel = kKernelRows;   // adds up the parts of a split of K
inline constexpr int kOtherKernel = kKernelRows + 1;  // not one that a plan launches
inline constexpr int kSampledKernels = kKernelRows + 2;

constexpr std::string_view SampledKernelName(int kernel) {
  if (kernel == kSumPartsKernel) return "sum_parts";
  return kernel < kKernelRows ? kKernelTable[kernel].name : "other";
}

enum class CodeKind : uint8_t {
  kOther,
  kWaitFull,    // for a stage to arrive: an mbarrier, and tensor math behind it
  kWaitEmpty,   // for a stage to be free: an mbarrier, and copies behind it
  kWaitTurn,    // for another warpgroup, by an mbarrier that is none of a stage's
  kWaitCopies,  // for the thread's own asynchronous copies
  kWaitKernel,  // for the end of the launch before, which this one begins beside
  kBlockBarrier,
  kTensorMath,  // its issue, and the wait for its end
  kCopies,      // issue of asynchronous copies
};
inline constexpr int kCodeKinds = 9;

// For people: "wait for a full stage".
constexpr std::string_view Description(CodeKind kind) {
  switch (kind) {
    case CodeKind::kOther: return "";
    case CodeKind::kWaitFull: return "wait for a full stage";
    case CodeKind::kWaitEmpty: return "wait for an empty stage";
    case CodeKind::kWaitTurn: return "wait for the turn";
    case CodeKind::kWaitCopies: return "wait for asynchronous copies";
    case CodeKind::kWaitKernel: return "wait for the kernel before";
    case CodeKind::kBlockBarrier: return "barrier of the block";
    case CodeKind::kTensorMath: return "tensor math";
    case CodeKind::kCopies: return "issue of copies";
  }
  return "";
}

// Instructions in a row. Offsets in bytes from the start of the function.
struct CodeRange {
  uint64_t first = 0;
  uint64_t last = 0;  // of the last instruction, which is in it
  CodeKind kind = CodeKind::kOther;
  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};

struct RangeSamples {
  CodeRange range;
  std::vector<int64_t> by_reason;  // one count for each of PcSampler::reasons()
};

struct FunctionSamples {
  int kernel = kOtherKernel;
  std::vector<RangeSamples> ranges;  // in the order of their offsets
};

struct PcSamples {
  std::vector<FunctionSamples> functions;  // rows have several: one for each type and storage
  int64_t dropped = 0;                     // by the hardware, for want of room
};

// Samples every kernel on its device, whoever launched it, for as long as it lives. Thread-safe.
class PcSampler {
 public:
  virtual ~PcSampler() = default;

  // As the driver names them; the same for as long as the sampler lives.
  virtual const std::vector<std::string>& reasons() const = 0;
  // What was sampled since the last Read(), or since the sampler was made. Waits for no kernel.
  // RESOURCE_EXHAUSTED where the samples outgrew their memory.
  virtual StatusOr<PcSamples> Read() = 0;
  // After so long Read() misses no sample of what has ended.
  virtual std::chrono::milliseconds delay() const = 0;
};

}  // namespace gemmd
