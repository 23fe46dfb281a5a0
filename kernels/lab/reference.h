// What the laboratory's kernel must find, computed on the host from the array's definition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/lab/lab_ring.h"

namespace gemmd::lab {

// The name that results and command lines use: cp_async, tma.
const char* Name(Mechanism mechanism);

// Of random words; panels lie in `strips` rows of `panels` each, side by side.
struct ArrayShape {
  int strips = 128;
  int panels = 128;

  int64_t rows() const { return int64_t{strips} * kPanelRows; }
  int64_t cols() const { return int64_t{panels} * kPanelRowWords; }  // words
  int64_t words() const { return rows() * cols(); }                  // below 2^32
  int64_t sums() const { return int64_t{strips} * panels * kWarps; }
};

// `work` rounds behind a sum at once.
class Work {
 public:
  explicit Work(int rounds);
  uint32_t After(uint32_t sum) const { return sum * factor_ + term_; }

 private:
  uint32_t factor_ = 1, term_ = 0;
};

// The sums of all panels, [strip][panel][warp], by `threads` threads.
std::vector<uint32_t> PanelSums(const ArrayShape& shape, uint32_t seed, int work, int threads);
// Of a slot that was never filled.
uint32_t PoisonSum(int warp, int work);

// Where a wrong sum's words came from.
enum class Origin : uint8_t {
  kPanel,     // whole panel `from_step`
  kUnfilled,  // the slot's content before its first copy
  kMixed,     // neither: words of several
};

struct WrongSum {
  int block = 0, step = 0, warp = 0;
  uint32_t expected = 0, found = 0;
  Origin origin = Origin::kMixed;
  int from_step = 0;  // of kPanel: the step of this block whose panel was found
};

// What is wrong with `found`, [block][step][warp] of a launch in which block i walked strip i once:
// all sums that differ, in order. The first `explained` of them have their origins looked for, the
// others are kMixed.
std::vector<WrongSum> WrongSums(const ArrayShape& shape, const std::vector<uint32_t>& expected,
                                const std::vector<uint32_t>& found, int work, size_t explained);

}  // namespace gemmd::lab
