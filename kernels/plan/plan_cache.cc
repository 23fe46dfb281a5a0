#include "kernels/plan/plan_cache.h"

#include "kernels/plan/hash.h"
#include "kernels/plan/tuning_table.h"

namespace gemmd {

PlanCache::Key::Key(const GemmProblem& p, const PlanConstraints& its_constraints)
    : m(p.m),
      n(p.n),
      k(p.k),
      batch(p.batch),
      traits(TimingTraits(p) | static_cast<uint64_t>(p.reads_c()) << 32 |
             static_cast<uint64_t>(p.deterministic) << 33),
      constraints(its_constraints) {}

size_t PlanCache::KeyHash::operator()(const Key& key) const {
  const auto word = [](int64_t value) { return static_cast<uint64_t>(value); };
  return HashOf({word(key.m), word(key.n), word(key.k), word(key.batch), key.traits,
                 word(key.constraints.row.value_or(-1)), word(key.constraints.stages.value_or(-1)),
                 word(key.constraints.split_k.value_or(-1))});
}

std::optional<Plan> PlanCache::Find(const Key& key, uint64_t generation) const {
  const Shard& shard = shards_[ShardOf(key)];
  MutexLock lock(shard.mu);
  const auto found = shard.plans.find(key);
  if (found == shard.plans.end() || found->second.generation != generation) return std::nullopt;
  return found->second.plan;
}

void PlanCache::Keep(const Key& key, uint64_t generation, const Plan& plan) {
  Shard& shard = shards_[ShardOf(key)];
  MutexLock lock(shard.mu);
  if (shard.plans.size() >= kPlansPerShard && !shard.plans.contains(key)) shard.plans.clear();
  shard.plans.insert_or_assign(key, Kept{generation, plan});
}

}  // namespace gemmd
