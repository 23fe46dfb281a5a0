#include "kernels/core/arena.h"

#include <algorithm>
#include <iterator>

namespace gemmd {

Arena::Arena(int64_t capacity_bytes) : capacity_(capacity_bytes / kAlignment * kAlignment) {
  if (capacity_ > 0) holes_.emplace(0, capacity_);
}

std::optional<int64_t> Arena::Allocate(int64_t bytes) {
  if (bytes > capacity_) return std::nullopt;
  const int64_t size = (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  auto best = holes_.end();
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second >= size && (best == holes_.end() || hole->second < best->second)) best = hole;
  }
  if (best == holes_.end()) return std::nullopt;
  const auto [offset, room] = *best;
  holes_.erase(best);
  if (room > size) holes_.emplace(offset + size, room - size);
  blocks_.emplace(offset, size);
  used_ += size;
  return offset;
}

void Arena::Free(int64_t offset) {
  const auto block = blocks_.find(offset);
  int64_t size = block->second;
  used_ -= size;
  blocks_.erase(block);
  auto next = holes_.lower_bound(offset);
  if (next != holes_.end() && offset + size == next->first) {
    size += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  holes_.emplace(offset, size);
}

}  // namespace gemmd
