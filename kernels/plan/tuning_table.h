// Measured times of plans, by problem: what tuning has learnt about one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "kernels/core/gemm_types.h"
#include "kernels/plan/plan.h"

namespace gemmd {

struct MeasuredPlan {
  Plan plan;           // row, stages, split_k and pair say which; the rest is the planner's
  double seconds = 0;  // device time of a launch, operands cold
};

struct TuningEntry {
  GemmProblem problem;
  std::vector<MeasuredPlan> plans;  // fastest first; at least one
};

// What a plan's time depends on beside m, n, k and batch, in the low 32 bits: ops, types, mode,
// which operands the whole batch shares, whether A and B are read, and whether the epilogue is more
// than alpha. Problems that agree in all of it and in their extents take the same time.
uint64_t TimingTraits(const GemmProblem& problem);

// The entries of one device, at most kMaxEntries of them. A value; not thread-safe.
class TuningTable {
 public:
  static constexpr size_t kMaxEntries = 20'000;
  // A near problem has no extent more than this factor away, as a power of two.
  static constexpr double kNearOctaves = 0.25;

  // Replaces the entry of the same problem. When the table is full, the oldest entry goes.
  // Precondition: the problem is not empty, and there is a plan.
  void Add(TuningEntry entry);

  // Of a problem that takes the same time. Null when there is none; valid until the next Add.
  const TuningEntry* Find(const GemmProblem& problem) const;
  // Of the closest near problem that differs in m, n and k alone and has the same of them as
  // multiples of 8; itself is the closest. The distance is the sum of |log2| of the three ratios.
  const TuningEntry* FindNear(const GemmProblem& problem) const;

  size_t size() const { return entries_.size(); }
  std::vector<TuningEntry> Entries() const;  // the oldest first

 private:
  // Problems whose extents lie in the same half octaves and are multiples of 8 or not alike, and
  // that agree in everything else.
  struct Bucket {
    int64_t batch = 0;
    uint64_t traits = 0;
    int m = 0, n = 0, k = 0;  // half octaves

    friend bool operator==(const Bucket&, const Bucket&) = default;
  };
  struct BucketHash {
    size_t operator()(const Bucket& bucket) const;
  };
  struct Place {
    double m = 0, n = 0, k = 0;  // log2 of the extents
  };
  struct Site {
    int64_t m = 0, n = 0, k = 0;
    Place place;
    uint64_t age = 0;  // of its entry
  };

  static Place PlaceOf(const GemmProblem& problem);
  static Bucket BucketOf(const GemmProblem& problem, const Place& place);
  static bool IsAt(const Site& site, const GemmProblem& problem);
  void Remove(std::map<uint64_t, TuningEntry>::iterator entry);

  uint64_t next_age_ = 0;
  std::map<uint64_t, TuningEntry> entries_;  // by age, the oldest first
  std::unordered_map<Bucket, std::vector<Site>, BucketHash> sites_;
};

}  // namespace gemmd
