// The backend for a machine without a GPU: OpenBLAS for fp32 and fp64, 16-bit types widened to fp32
// and rounded once, int8 exact. Also what lets every other part be tested without a GPU.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "kernels/core/status.h"

namespace gemmd {

struct CpuBackendOptions {
  int lanes = 4;             // 1 .. 64; each has a thread of its own
  int threads = 0;           // BLAS threads over all lanes; 0: the processors of this machine
  int64_t memory_bytes = 0;  // what one problem's operands and result may take; 0: physical memory
};

// Each lane runs one product at a time on its thread, with threads / lanes (at least 1) BLAS
// threads: a setting of the whole process, so make no backend while another one multiplies.
// LaneResult::times.kernel is host time of the product; there is no staging and no stall probe.
// INVALID_ARGUMENT for options out of range, RESOURCE_EXHAUSTED when no thread can be started.
StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace gemmd
