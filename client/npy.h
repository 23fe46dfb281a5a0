// NumPy's .npy files, format versions 1 to 3, as matrices and vectors. Files are hostile until
// parsed: every size is checked against the file's own before anything of that size is allocated.
//
// Element types by their NumPy name: f2, f4, f8, i1, i4, little-endian. NumPy has no name for the
// others: two raw bytes (V2, as ml_dtypes writes them) are bf16, and f1 is e5m2; V1 and u1 are
// e4m3 or e5m2, and u2 bf16, only when the caller says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"

namespace gemmd {

struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<int64_t> shape;
  int64_t data_offset = 0;  // bytes from the start of the file
};

// Bytes from the start of a file to the first element, read from its first 12 bytes (or all that
// there are). INVALID_ARGUMENT for no .npy file, an unknown version or a header above 64 KiB.
StatusOr<int64_t> NpyDataOffset(std::string_view start);

// `head` is the file up to its first element. Extents are not negative, and their product fits 63
// bits; structured types are refused.
StatusOr<NpyHeader> ParseNpyHeader(std::string_view head);

// What `descr` holds. `wanted` names types that NumPy cannot; it does not ask for a conversion.
StatusOr<DType> NpyElementType(std::string_view descr, std::optional<DType> wanted);

// Elements in memory. A matrix, a batch of them, or (rows = 1) a vector.
struct NpyArray {
  DType type{};
  int64_t batch = 1, rows = 0, cols = 0;
  bool has_batch = false;     // three extents in the file
  bool column_major = false;  // without a batch only: stored as cols rows of `rows` elements
  int64_t bytes = 0;
  std::unique_ptr<std::byte[]> data;
};

enum class NpyRank {
  kVector,  // 1-D, or 2-D with an extent of 1
  kMatrix,  // 2-D, or 3-D: a batch
};

// Reads `path` and converts its elements to `wanted` where that is given: floating types to one
// another and i8 to floating types, rounded once. Statuses name the path: NOT_FOUND or
// PERMISSION_DENIED or UNKNOWN with the system's reason, INVALID_ARGUMENT for contents,
// OUT_OF_RANGE for more than 16 GiB, RESOURCE_EXHAUSTED.
StatusOr<NpyArray> ReadNpy(const std::string& path, NpyRank rank, std::optional<DType> wanted);

// Column major to row major, in new memory. No-op for row major.
Status MakeRowMajor(NpyArray* array);

// Writes a row-major array; a reader sees the old file or the whole new one, which keeps the old
// one's mode. bf16 as V2.
Status WriteNpy(const std::string& path, const NpyArray& array);

}  // namespace gemmd
