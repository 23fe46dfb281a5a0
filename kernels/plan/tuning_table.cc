#include "kernels/plan/tuning_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/plan/hash.h"

namespace gemmd {
namespace {

constexpr double kBucketsPerOctave = 2;

// log2 of an extent. An empty K, which is a problem of its own, gets a place far from all others.
double PlaceOfExtent(int64_t extent) {
  return extent == 0 ? -64.0 : std::log2(static_cast<double>(extent));
}

int BucketAt(double place) { return static_cast<int>(std::floor(place * kBucketsPerOctave)); }

}  // namespace

uint64_t TimingTraits(const GemmProblem& p) {
  const bool batched = p.batch > 1;
  uint64_t traits = 0;
  const auto push = [&traits](unsigned bits, uint64_t value) { traits = traits << bits | value; };
  push(1, static_cast<uint64_t>(p.op_a));
  push(1, static_cast<uint64_t>(p.op_b));
  push(4, static_cast<uint64_t>(p.type_a));
  push(4, static_cast<uint64_t>(p.type_b));
  push(4, static_cast<uint64_t>(p.type_d));
  push(2, static_cast<uint64_t>(p.mode));
  push(1, static_cast<uint64_t>(batched && p.a.batch_stride == 0));
  push(1, static_cast<uint64_t>(batched && p.b.batch_stride == 0));
  push(1, static_cast<uint64_t>(p.reads_ab()));
  push(1, static_cast<uint64_t>(p.reads_c() || p.bias != BiasAxis::kNone ||
                                p.act != Activation::kNone));
  return traits;
}

size_t TuningTable::BucketHash::operator()(const Bucket& bucket) const {
  return HashOf({static_cast<uint64_t>(bucket.batch), bucket.traits,
                 static_cast<uint64_t>(bucket.m), static_cast<uint64_t>(bucket.n),
                 static_cast<uint64_t>(bucket.k)});
}

TuningTable::Place TuningTable::PlaceOf(const GemmProblem& p) {
  return {PlaceOfExtent(p.m), PlaceOfExtent(p.n), PlaceOfExtent(p.k)};
}

TuningTable::Bucket TuningTable::BucketOf(const GemmProblem& p, const Place& place) {
  const auto aligned = [](int64_t extent) { return static_cast<uint64_t>(extent % 8 == 0); };
  const uint64_t alignment = aligned(p.m) << 2 | aligned(p.n) << 1 | aligned(p.k);
  return {p.batch, TimingTraits(p) | alignment << 32, BucketAt(place.m), BucketAt(place.n),
          BucketAt(place.k)};
}

bool TuningTable::IsAt(const Site& site, const GemmProblem& p) {
  return site.m == p.m && site.n == p.n && site.k == p.k;
}

void TuningTable::Remove(std::map<uint64_t, TuningEntry>::iterator entry) {
  const GemmProblem& problem = entry->second.problem;
  const auto bucket = sites_.find(BucketOf(problem, PlaceOf(problem)));
  std::erase_if(bucket->second, [&](const Site& site) { return site.age == entry->first; });
  if (bucket->second.empty()) sites_.erase(bucket);
  entries_.erase(entry);
}

void TuningTable::Add(TuningEntry entry) {
  const GemmProblem& p = entry.problem;
  const Place place = PlaceOf(p);
  const Bucket bucket = BucketOf(p, place);
  if (const auto known = sites_.find(bucket); known != sites_.end()) {
    const auto same = std::find_if(known->second.begin(), known->second.end(),
                                   [&p](const Site& site) { return IsAt(site, p); });
    if (same != known->second.end()) Remove(entries_.find(same->age));
  }
  if (entries_.size() == kMaxEntries) Remove(entries_.begin());
  const uint64_t age = next_age_++;
  sites_[bucket].push_back({p.m, p.n, p.k, place, age});
  entries_.emplace(age, std::move(entry));
}

const TuningEntry* TuningTable::Find(const GemmProblem& p) const {
  const auto bucket = sites_.find(BucketOf(p, PlaceOf(p)));
  if (bucket == sites_.end()) return nullptr;
  for (const Site& site : bucket->second) {
    if (IsAt(site, p)) return &entries_.find(site.age)->second;
  }
  return nullptr;
}

const TuningEntry* TuningTable::FindNear(const GemmProblem& p) const {
  const Place here = PlaceOf(p);
  const Bucket own = BucketOf(p, here);
  const Site* closest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  const auto look = [&](const Bucket& bucket) {
    const auto found = sites_.find(bucket);
    if (found == sites_.end()) return;
    for (const Site& site : found->second) {
      const double m = std::abs(site.place.m - here.m), n = std::abs(site.place.n - here.n),
                   k = std::abs(site.place.k - here.k);
      if (std::max({m, n, k}) > kNearOctaves || m + n + k >= least) continue;
      least = m + n + k;
      closest = &site;
    }
  };
  // What is near in an extent lies in its bucket or in the neighbour on one side.
  const auto first = [](double place) { return BucketAt(place - kNearOctaves); };
  const auto last = [](double place) { return BucketAt(place + kNearOctaves); };
  Bucket bucket = own;
  for (bucket.m = first(here.m); bucket.m <= last(here.m); ++bucket.m) {
    for (bucket.n = first(here.n); bucket.n <= last(here.n); ++bucket.n) {
      for (bucket.k = first(here.k); bucket.k <= last(here.k); ++bucket.k) look(bucket);
    }
  }
  return closest == nullptr ? nullptr : &entries_.find(closest->age)->second;
}

std::vector<TuningEntry> TuningTable::Entries() const {
  std::vector<TuningEntry> entries;
  entries.reserve(entries_.size());
  for (const auto& [age, entry] : entries_) entries.push_back(entry);
  return entries;
}

}  // namespace gemmd
