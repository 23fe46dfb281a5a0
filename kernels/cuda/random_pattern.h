// Random operands in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/cuda/handles.h"

namespace gemmd {

// For values whose times are asked for, not their sum.
inline constexpr int64_t kPatternElements =
    1048573;  // a prime: no row length makes rows repeat early
inline constexpr uint64_t kPatternSeed = 1;

// Standard normal values of one type on the current device, to fill operands from.
class RandomPattern {
 public:
  // `type` is any but kF64 and kI32. `elements`: a prime keeps rows from repeating early.
  static StatusOr<RandomPattern> Create(DType type, uint64_t seed, int64_t elements = 8388593);

  DType type() const { return type_; }
  // Enqueues the fill of `count` elements at `device` on the default stream, with the pattern from
  // element `first` on, over and over.
  Status Fill(std::byte* device, int64_t count, int64_t first) const;

 private:
  RandomPattern(DType type, int64_t elements) : type_(type), elements_(elements) {}

  DType type_;
  int64_t elements_;
  DeviceBuffer values_;
};

}  // namespace gemmd
