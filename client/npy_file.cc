// Reading, converting and writing .npy files; their format is in npy.cc.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/npy.h"
#include "kernels/core/checked.h"
#include "kernels/core/files.h"
#include "kernels/core/numeric.h"

namespace gemmd {
namespace {

// What is sent may be an eighth of what is stored (f8 to fp8), and a message is below 2 GiB.
constexpr int64_t kMaxFileBytes = int64_t{16} << 30;

Status AboutFile(const std::string& path, const Status& status) {
  return {status.code(), path + ": " + status.message()};
}

Status ReadExactly(int fd, const std::string& path, int64_t offset, int64_t bytes, std::byte* out) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, out, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(path, "read");
    if (got == 0) return InvalidArgument("npy", path + " became shorter while it was read");
    out += got;
    offset += got;
    bytes -= got;
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<std::byte[]>> Allocate(int64_t bytes) {
  try {
    return std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory for " + std::to_string(bytes) + " bytes");
  }
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

Status SetExtents(const std::vector<int64_t>& shape, NpyRank rank, NpyArray* array) {
  const auto refuse = [&](const std::string& why) {
    return InvalidArgument("npy", "shape " + ShapeText(shape) + " is not " + why);
  };
  const size_t dims = shape.size();
  if (rank == NpyRank::kVector) {
    const bool ok = dims == 1 || (dims == 2 && (shape[0] == 1 || shape[1] == 1));
    if (!ok) return refuse("a vector: (n,), (1, n) or (n, 1)");
    array->rows = 1;
    array->cols = dims == 1 || shape[0] != 1 ? shape[0] : shape[1];
    return OkStatus();
  }
  if (dims != 2 && dims != 3) {
    return refuse("a matrix (rows, cols) or a batch of them (batch, rows, cols)");
  }
  for (const int64_t extent : shape) {
    if (extent > kMaxExtent) {
      return refuse("within the limit of " + std::to_string(kMaxExtent) + " for an extent");
    }
  }
  array->has_batch = dims == 3;
  array->batch = dims == 3 ? shape[0] : 1;
  array->rows = shape[dims - 2];
  array->cols = shape[dims - 1];
  return OkStatus();
}

// Elements stored with the first extent fastest, into row-major order.
Status ReorderBatch(NpyArray* array) {
  ASSIGN_OR_RETURN(std::unique_ptr<std::byte[]> ordered, Allocate(array->bytes));
  const int64_t size = SizeOf(array->type);
  std::byte* to = ordered.get();
  for (int64_t i = 0; i < array->batch; ++i) {
    for (int64_t row = 0; row < array->rows; ++row) {
      for (int64_t col = 0; col < array->cols; ++col, to += size) {
        const int64_t from = i + array->batch * (row + array->rows * col);
        std::memcpy(to, array->data.get() + from * size, static_cast<size_t>(size));
      }
    }
  }
  array->data = std::move(ordered);
  return OkStatus();
}

bool IsFloating(DType type) { return type != DType::kI8 && type != DType::kI32; }

Status Convert(DType to, NpyArray* array) {
  const DType from = array->type;
  if (to == from) return OkStatus();
  if (!IsFloating(to) || from == DType::kI32) {
    return InvalidArgument("npy", "elements are " + std::string(Name(from)) +
                                      " and are not converted to " + std::string(Name(to)));
  }
  const int64_t count = array->bytes / SizeOf(from);
  const std::optional<int64_t> bytes = CheckedMul(count, SizeOf(to));
  if (!bytes) return InvalidArgument("npy", "too large to convert");
  ASSIGN_OR_RETURN(std::unique_ptr<std::byte[]> converted, Allocate(*bytes));
  if (from == DType::kF32 && to != DType::kF64) {
    NarrowFromFloat(reinterpret_cast<const float*>(array->data.get()), to, count, converted.get());
  } else {
    for (int64_t i = 0; i < count; ++i) {
      StoreElement(converted.get(), to, i, LoadElement(array->data.get(), from, i));
    }
  }
  array->type = to;
  array->bytes = *bytes;
  array->data = std::move(converted);
  return OkStatus();
}

// Header bytes that a file of this size could have; read before anything else is believed.
StatusOr<NpyHeader> ReadHeader(int fd, const std::string& path, int64_t file_bytes) {
  std::string head(static_cast<size_t>(std::min<int64_t>(12, file_bytes)), '\0');
  RETURN_IF_ERROR(ReadExactly(fd, path, 0, static_cast<int64_t>(head.size()),
                              reinterpret_cast<std::byte*>(head.data())));
  ASSIGN_OR_RETURN(const int64_t offset, NpyDataOffset(head));
  head.resize(static_cast<size_t>(std::min(offset, file_bytes)));
  RETURN_IF_ERROR(ReadExactly(fd, path, 0, static_cast<int64_t>(head.size()),
                              reinterpret_cast<std::byte*>(head.data())));
  return ParseNpyHeader(head);
}

StatusOr<NpyArray> ReadOpen(int fd, const std::string& path, int64_t file_bytes, NpyRank rank,
                            std::optional<DType> wanted) {
  ASSIGN_OR_RETURN(const NpyHeader header, ReadHeader(fd, path, file_bytes));
  NpyArray array;
  ASSIGN_OR_RETURN(array.type, NpyElementType(header.descr, wanted));
  RETURN_IF_ERROR(SetExtents(header.shape, rank, &array));
  const std::optional<int64_t> bytes =
      CheckedMul(CheckedMul(CheckedMul(array.batch, array.rows), array.cols), SizeOf(array.type));
  const int64_t there = file_bytes - header.data_offset;
  if (!bytes || *bytes != there) {
    return InvalidArgument(
        "npy", "shape " + ShapeText(header.shape) + " of '" + header.descr + "' takes " +
                   (bytes ? std::to_string(*bytes) : "2^63 or more") +
                   " bytes after the header, the file has " + std::to_string(there));
  }
  if (*bytes > kMaxFileBytes) {
    return OutOfRange("npy", "holds " + std::to_string(*bytes) + " bytes, above the limit of " +
                                 std::to_string(kMaxFileBytes));
  }
  array.bytes = *bytes;
  ASSIGN_OR_RETURN(array.data, Allocate(array.bytes));
  RETURN_IF_ERROR(ReadExactly(fd, path, header.data_offset, array.bytes, array.data.get()));
  if (header.fortran_order && rank == NpyRank::kMatrix) {
    if (array.has_batch && array.bytes > 0) RETURN_IF_ERROR(ReorderBatch(&array));
    array.column_major = !array.has_batch;
  }
  if (wanted) RETURN_IF_ERROR(Convert(*wanted, &array));
  return array;
}

std::string_view Descr(DType type) {
  switch (type) {
    case DType::kF16: return "<f2";
    case DType::kBF16: return "<V2";
    case DType::kF32: return "<f4";
    case DType::kF64: return "<f8";
    case DType::kF8E4M3:
    case DType::kF8E5M2: return "|V1";
    case DType::kI8: return "|i1";
    case DType::kI32: return "<i4";
  }
  return "";
}

std::string Header(const NpyArray& array) {
  std::string dict = "{'descr': '" + std::string(Descr(array.type)) +
                     "', 'fortran_order': False, 'shape': (" +
                     (array.has_batch ? std::to_string(array.batch) + ", " : "") +
                     std::to_string(array.rows) + ", " + std::to_string(array.cols) + "), }";
  dict.append(63 - (10 + dict.size()) % 64, ' ');  // data starts on a multiple of 64
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

}  // namespace

StatusOr<NpyArray> ReadNpy(const std::string& path, NpyRank rank, std::optional<DType> wanted) {
  // Opening a pipe would wait for its writer.
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (file.fd() < 0 || fstat(file.fd(), &info) != 0) return SystemError(path, "open");
  if (!S_ISREG(info.st_mode)) return InvalidArgument("npy", path + " is not a regular file");
  StatusOr<NpyArray> array = ReadOpen(file.fd(), path, info.st_size, rank, wanted);
  if (array.ok() || array.status().message().find(path) != std::string::npos) return array;
  return AboutFile(path, array.status());
}

Status MakeRowMajor(NpyArray* array) {
  if (!array->column_major) return OkStatus();
  array->column_major = false;
  if (array->bytes == 0) return OkStatus();
  ASSIGN_OR_RETURN(std::unique_ptr<std::byte[]> ordered, Allocate(array->bytes));
  const int64_t size = SizeOf(array->type), rows = array->rows, cols = array->cols;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      std::memcpy(ordered.get() + (row * cols + col) * size,
                  array->data.get() + (col * rows + row) * size, static_cast<size_t>(size));
    }
  }
  array->data = std::move(ordered);
  return OkStatus();
}

Status WriteNpy(const std::string& path, const NpyArray& array) {
  ASSIGN_OR_RETURN(ReplacedFile file, ReplacedFile::Create(path));
  const std::string header = Header(array);
  RETURN_IF_ERROR(file.Write(header.data(), static_cast<int64_t>(header.size())));
  RETURN_IF_ERROR(file.Write(array.data.get(), array.bytes));
  return file.Commit();
}

}  // namespace gemmd
