// Bounds the memory that results take: those of products that wait, run, or have been answered and
// not been taken by their caller yet.
#pragma once

#include <atomic>
#include <cstdint>

namespace gemmd {

class ReplyBudget {  // Thread-safe.
 public:
  explicit ReplyBudget(int64_t max_bytes) : max_bytes_(max_bytes) {}
  ReplyBudget(const ReplyBudget&) = delete;
  ReplyBudget& operator=(const ReplyBudget&) = delete;

  // False, and nothing taken, when `bytes` more would be above the limit.
  bool TryTake(int64_t bytes) {
    int64_t taken = bytes_.load(std::memory_order_relaxed);
    do {
      if (bytes > max_bytes_ - taken) return false;
    } while (!bytes_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    return true;
  }
  void GiveBack(int64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  int64_t max_bytes() const { return max_bytes_; }

 private:
  const int64_t max_bytes_;
  std::atomic<int64_t> bytes_{0};  // relaxed: a sum that guards no other memory
};

}  // namespace gemmd
