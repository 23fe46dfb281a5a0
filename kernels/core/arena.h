// Hands out parts of one fixed range of bytes. Knows offsets only, so it serves device memory and
// pinned memory alike; the memory itself is somebody else's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace gemmd {

class Arena {  // Not thread-safe.
 public:
  // Every offset and size is a multiple of this: what device copies and vector loads like best.
  static constexpr int64_t kAlignment = 256;

  explicit Arena(int64_t capacity_bytes);

  // Offset of `bytes` (rounded up; 0 counts as 1) that nobody else holds, from the smallest hole
  // that fits; nullopt when there is none.
  std::optional<int64_t> Allocate(int64_t bytes);
  // `offset` came from Allocate and has not been freed since.
  void Free(int64_t offset);

  int64_t capacity() const { return capacity_; }
  int64_t used() const { return used_; }

 private:
  const int64_t capacity_;
  int64_t used_ = 0;
  std::map<int64_t, int64_t> holes_;   // offset -> bytes; never adjacent to each other
  std::map<int64_t, int64_t> blocks_;  // offset -> bytes
};

}  // namespace gemmd
