// Hashes of keys that are several numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace gemmd {

constexpr size_t HashOf(std::initializer_list<uint64_t> words) {
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash);
}

}  // namespace gemmd
