// What is left out of the ring, and how it is told what became of that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/lab/lab_ring.h"
#include "kernels/lab/reference.h"

namespace gemmd::lab {

// One fault, as it is told.
struct Hazard {
  Fault fault;
  const char* name;     // in results and on command lines
  const char* removed;  // the ordering that is left out
  const char* why;      // what its absence lets happen
};
// All but Fault::kNone.
const std::vector<Hazard>& Hazards();

// A wrong sum and the iteration that it is of.
struct Example {
  int iteration = 0;
  WrongSum wrong;
};

struct HazardRow {
  const Hazard* hazard = nullptr;
  Mechanism mechanism = Mechanism::kCpAsync;
  uint32_t delay_clocks = 0;
  int iterations = 0;
  int correct_failures = 0;  // iterations of the whole ring with a wrong sum
  int broken_failures = 0;   // of the ring without the edge
  int64_t broken_wrong_sums = 0;
  int64_t sums = 0;  // that each of the two was asked for
  // What it takes to see the same again.
  uint32_t seed = 0;  // of the first iteration's words; each later one adds 1
  int stages = 0;
  ArrayShape array;
  std::vector<Example> first_wrong;          // of the broken ring
  std::vector<Example> first_correct_wrong;  // of the whole one: none
};

// "step 7's", "the slot before its first copy's", "several panels'".
std::string OriginText(const WrongSum& wrong);

Json HazardJson(const HazardRow& row);
// For people: a table, and of each hazard what was removed, why that matters and the first sums.
std::string HazardReport(const std::vector<HazardRow>& rows);

}  // namespace gemmd::lab
