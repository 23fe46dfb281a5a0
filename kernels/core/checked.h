// 64-bit arithmetic that says when it would overflow. Sizes of requests are computed with these
// before anything is allocated.
#pragma once

#include <cstdint>
#include <optional>

namespace gemmd {

// nullopt when either input is (the chain already overflowed) or the result does not fit.
inline std::optional<int64_t> CheckedMul(std::optional<int64_t> a, std::optional<int64_t> b) {
  int64_t result = 0;
  if (!a || !b || __builtin_mul_overflow(*a, *b, &result)) return std::nullopt;
  return result;
}

inline std::optional<int64_t> CheckedAdd(std::optional<int64_t> a, std::optional<int64_t> b) {
  int64_t result = 0;
  if (!a || !b || __builtin_add_overflow(*a, *b, &result)) return std::nullopt;
  return result;
}

}  // namespace gemmd
