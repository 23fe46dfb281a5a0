// What the laboratory's kernel is given. lab_ring.h says what it does.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/lab/lab_ring.h"

namespace gemmd::lab {

struct LabParams : RingSettings {
  CUtensorMap map;                  // of the array in boxes of a panel: TMA
  const uint32_t* array = nullptr;  // the same: cp.async
  int64_t ld = 0;                   // words of a row
  int strips = 1;                   // rows of panels; block i walks strip i % strips
  uint32_t* sums = nullptr;         // [block][step][warp]; or null
  uint32_t* trace = nullptr;        // [block][step][warp][moment] of trace_blocks; or null
  BlockReport* reports = nullptr;   // [block]
};

// Any grid of kThreads threads. TMA is for sm_90 alone. The ring with both edges has a traced
// instance, and needs it where there is a trace.
const void* CpAsyncEntry(Fault fault, bool traced);
const void* TmaEntry(Fault fault, bool traced);

struct FillParams {
  uint32_t* array = nullptr;
  uint32_t words = 0;
  uint32_t seed = 0;
};
inline constexpr int kFillThreads = 256;
const void* FillEntry();  // any grid of kFillThreads threads

}  // namespace gemmd::lab
