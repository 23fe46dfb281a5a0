// Plans of problems that were asked about before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "kernels/core/gemm_types.h"
#include "kernels/core/mutex.h"
#include "kernels/plan/plan.h"

namespace gemmd {

class PlanCache {  // Thread-safe.
 public:
  // All that planning reads of a problem, and the constraints.
  struct Key {
    Key(const GemmProblem& problem, const PlanConstraints& its_constraints);

    int64_t m, n, k, batch;
    uint64_t traits;
    PlanConstraints constraints;

    friend bool operator==(const Key&, const Key&) = default;
  };

  // A plan is found only under the generation that it was kept under.
  std::optional<Plan> Find(const Key& key, uint64_t generation) const;
  void Keep(const Key& key, uint64_t generation, const Plan& plan);

 private:
  // A shard that is full forgets all it had: what is asked for often is back soon.
  static constexpr size_t kShards = 16, kPlansPerShard = 512;

  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Kept {
    uint64_t generation;
    Plan plan;
  };
  struct Shard {
    mutable Mutex mu;
    std::unordered_map<Key, Kept, KeyHash> plans GUARDED_BY(mu);
  };

  static size_t ShardOf(const Key& key) { return KeyHash{}(key) >> 8 & (kShards - 1); }

  std::array<Shard, kShards> shards_;
};

}  // namespace gemmd
