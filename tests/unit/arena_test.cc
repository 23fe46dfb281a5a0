#include "kernels/core/arena.h"

#include <cstdint>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace gemmd {
namespace {

TEST(ArenaTest, RoundsSizesUpAndCountsThem) {
  Arena arena(4096);
  EXPECT_EQ(arena.Allocate(1), 0);
  EXPECT_EQ(arena.used(), 256);
  EXPECT_EQ(arena.Allocate(257), 256);
  EXPECT_EQ(arena.used(), 768);
}

TEST(ArenaTest, RefusesWhatDoesNotFitAndStaysWhole) {
  Arena arena(1024);
  EXPECT_FALSE(arena.Allocate(1025));
  EXPECT_FALSE(arena.Allocate(INT64_MAX));
  EXPECT_EQ(arena.Allocate(1024), 0);
  EXPECT_FALSE(arena.Allocate(1));
  arena.Free(0);
  EXPECT_EQ(arena.Allocate(1024), 0);
}

TEST(ArenaTest, TakesTheSmallestHoleThatFits) {
  Arena arena(256 * 10);
  const int64_t a = *arena.Allocate(256 * 4), b = *arena.Allocate(256);
  const int64_t c = *arena.Allocate(256 * 2), d = *arena.Allocate(256);
  arena.Free(a);
  arena.Free(c);
  EXPECT_EQ(arena.Allocate(256 * 2), c) << "the hole of two, not the hole of four";
  EXPECT_EQ(b, 256 * 4);
  EXPECT_EQ(d, 256 * 7);
}

TEST(ArenaTest, AnEmptyPoolRefusesEverything) {
  Arena arena(0);
  EXPECT_FALSE(arena.Allocate(0));
}

TEST(ArenaTest, BlocksNeverOverlapAndEverythingComesBackAsOneHole) {
  constexpr int64_t kCapacity = 1 << 20;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Arena arena(kCapacity);
  std::map<int64_t, int64_t> held;
  for (int step = 0; step < 20000; ++step) {
    if (held.empty() || random() % 2 == 0) {
      const auto bytes = static_cast<int64_t>(random() % (kCapacity / 16) + 1);
      const std::optional<int64_t> offset = arena.Allocate(bytes);
      if (!offset) continue;
      const auto next = held.lower_bound(*offset);
      if (next != held.end()) {
        ASSERT_LE(*offset + bytes, next->first);
      }
      if (next != held.begin()) {
        const auto before = std::prev(next);
        ASSERT_LE(before->first + before->second, *offset);
      }
      ASSERT_LE(*offset + bytes, kCapacity);
      held.emplace(*offset, bytes);
    } else {
      const auto victim = std::next(held.begin(), static_cast<int64_t>(random() % held.size()));
      arena.Free(victim->first);
      held.erase(victim);
    }
  }
  for (const auto& [offset, bytes] : held) arena.Free(offset);
  EXPECT_EQ(arena.used(), 0);
  EXPECT_EQ(arena.Allocate(kCapacity), 0);
}

}  // namespace
}  // namespace gemmd
