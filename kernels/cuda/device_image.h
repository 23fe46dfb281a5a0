// How one request lies in device memory. The pitch there is ours: rows are padded to 16 bytes (128
// where that costs little), so that every kernel sees aligned rows whatever the caller's sizes.
//
//   | A | B | C | bias | counters | D |
//
// Staging memory holds the same image, so that one copy takes operands and zeroed counters down,
// and one brings counters and D back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"

namespace gemmd {

struct ImageMatrix {
  int64_t offset = 0;        // bytes from the start of the image
  int64_t ld = 0;            // elements
  int64_t batch_stride = 0;  // elements; 0: one matrix for the whole batch
  int64_t matrices = 0;      // held; 0: the problem does not read it
};

struct DeviceImage {
  ImageMatrix a, b, c, d;
  int64_t bias_offset = 0;
  int64_t counters_offset = 0;
  int64_t bytes = 0;

  int64_t upload_bytes() const { return d.offset; }                   // from 0
  int64_t download_bytes() const { return bytes - counters_offset; }  // from counters_offset
};

// RESOURCE_EXHAUSTED when the padded image passes 2^63 bytes. Precondition: the problem is valid
// and not empty.
StatusOr<DeviceImage> ImageOf(const GemmProblem& problem);

// Copies the operands that the problem reads into `image_base` and zeroes the counters.
void FillImage(const GemmProblem& problem, const HostOperands& operands, const DeviceImage& image,
               std::byte* image_base);

// Copies D out of the image into operands.d, packed.
void ReadResult(const GemmProblem& problem, const DeviceImage& image, const std::byte* image_base,
                const HostOperands& operands);

}  // namespace gemmd
