// What happens without one of the two edges: the same ring, correct and broken, over fresh random
// words each time, against sums from the host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/lab/hazard_report.h"
#include "kernels/lab/lab_run.h"

namespace gemmd::lab {

struct HazardOptions {
  int iterations = 1000;              // of each line
  std::vector<uint32_t> delays;       // clocks of the last warp, before it reads
  std::vector<Fault> faults;          // empty: all
  std::vector<Mechanism> mechanisms;  // that the device has
  uint32_t seed = 1;                  // iteration i has the words of seed + i
  int stages = 2;
  int threads = 1;  // of the host's reference
};

// Every fault, mechanism and delay. Rows of one iteration share its words.
StatusOr<std::vector<HazardRow>> RunHazards(LabDevice& device, const HazardOptions& options);

}  // namespace gemmd::lab
