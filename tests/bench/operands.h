// Random operands in device memory, in as many sets as keep launches from meeting their own data in
// the L2 cache. The same values lie there twice: packed, as a caller holds them, and with padded
// rows, as the server's kernels see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/cuda/device_image.h"
#include "kernels/cuda/gemm_params.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/random_pattern.h"

namespace gemmd::bench {

enum class Form : uint8_t { kPitched, kPacked };

// One set's matrices in device memory: the first of each operand's, batch_stride elements from one
// to the next. D is row-major too.
struct DeviceOperands {
  std::byte* a = nullptr;
  std::byte* b = nullptr;
  std::byte* d = nullptr;
  int64_t lda = 0, ldb = 0, ldd = 0;                 // elements
  int64_t stride_a = 0, stride_b = 0, stride_d = 0;  // elements; unused where the batch is 1
};

class OperandSets {
 public:
  // As many sets as touch more than three times `l2_bytes`, at least 2, unless the memory limit of
  // 24 GiB cuts them short; RESOURCE_EXHAUSTED when one does not fit. Padding is NaN.
  // Preconditions: every product has an A and a B of its own, all packed; A, B and D are of the
  // pattern's type.
  static StatusOr<OperandSets> Create(const GemmProblem& problem, int64_t l2_bytes,
                                      const RandomPattern& pattern);

  // Set `index` modulo the sets.
  DeviceOperands At(Form form, int index) const;
  GemmParams Params(int index) const;             // pitched; no probe
  unsigned long long* Counters(int index) const;  // zeroed since creation
  int sets() const { return sets_; }

  // Whether a packed row is no multiple of 16 bytes, in A, B or D.
  bool unaligned_rows() const { return unaligned_rows_; }

  // Set 0, waited for. D's bytes become 0xff, padding included.
  Status PoisonResult(Form form) const;
  // Whole A and B of one product of the batch as problem.a and problem.b say, packed.
  Status DownloadOperands(int64_t product, std::vector<std::byte>& a,
                          std::vector<std::byte>& b) const;
  // The given rows of that product's D, packed (rows, n).
  StatusOr<std::vector<std::byte>> DownloadRows(Form form, int64_t product,
                                                const std::vector<int64_t>& rows) const;

 private:
  struct Layout {  // within a set
    ImageMatrix a, b, d;
  };

  Status FillSet(int index, const RandomPattern& pattern) const;
  std::byte* Base(int index) const;
  const Layout& LayoutOf(Form form) const { return form == Form::kPitched ? pitched_ : packed_; }

  GemmProblem problem_;
  Layout pitched_, packed_;  // the same memory where packed rows need no padding
  int64_t counters_offset_ = 0;
  int64_t set_bytes_ = 0;
  int sets_ = 0;
  bool unaligned_rows_ = false;
  DeviceBuffer memory_;
  DeviceBuffer workspace_;  // of all launches, which follow one another on one stream
};

}  // namespace gemmd::bench
