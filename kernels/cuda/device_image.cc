#include "kernels/cuda/device_image.h"

#include <cstring>
#include <optional>

#include "kernels/core/checked.h"
#include "kernels/cuda/gemm_params.h"
#include "kernels/plan/kernel_config.h"

namespace gemmd {
namespace {

constexpr int64_t kPartAlignment = 256;

// Lays out parts one after another; remembers when the sum passed 64 bits.
class ImageBuilder {
 public:
  ImageMatrix Matrix(int64_t rows, int64_t cols, int64_t matrices, DType type) {
    ImageMatrix m;
    m.matrices = matrices;
    m.ld = RowPitchBytes(cols * SizeOf(type)) / SizeOf(type);
    const std::optional<int64_t> elements = CheckedMul(rows, m.ld);
    m.batch_stride = matrices > 1 ? elements.value_or(0) : 0;
    m.offset = Bytes(CheckedMul(CheckedMul(elements, matrices), SizeOf(type)));
    return m;
  }

  int64_t Bytes(std::optional<int64_t> bytes) {
    const int64_t offset = end_.value_or(0);
    end_ = CheckedAdd(end_, CheckedAdd(bytes, kPartAlignment - 1));
    if (end_) end_ = *end_ / kPartAlignment * kPartAlignment;
    return offset;
  }

  std::optional<int64_t> end() const { return end_; }

 private:
  std::optional<int64_t> end_ = 0;
};

void CopyRows(std::byte* dst, int64_t dst_ld, const std::byte* src, int64_t src_ld, int64_t rows,
              int64_t cols, int64_t element_bytes) {
  const int64_t row_bytes = cols * element_bytes;
  if (dst_ld == cols && src_ld == cols) {
    std::memcpy(dst, src, static_cast<size_t>(rows * row_bytes));
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(dst + row * dst_ld * element_bytes, src + row * src_ld * element_bytes,
                static_cast<size_t>(row_bytes));
  }
}

void FillMatrix(const ImageMatrix& to, std::byte* image_base, const MatrixLayout& from,
                const std::byte* src, DType type) {
  const int64_t size = SizeOf(type);
  for (int64_t i = 0; i < to.matrices; ++i) {
    CopyRows(image_base + to.offset + i * to.batch_stride * size, to.ld,
             src + i * from.batch_stride * size, from.ld, from.rows, from.cols, size);
  }
}

}  // namespace

StatusOr<DeviceImage> ImageOf(const GemmProblem& p) {
  ImageBuilder builder;
  DeviceImage image;
  const auto held = [&p](const MatrixLayout& layout) {
    return layout.batch_stride == 0 ? int64_t{1} : p.batch;
  };
  if (p.reads_ab()) {
    image.a = builder.Matrix(p.a.rows, p.a.cols, held(p.a), p.type_a);
    image.b = builder.Matrix(p.b.rows, p.b.cols, held(p.b), p.type_b);
  }
  if (p.reads_c()) image.c = builder.Matrix(p.m, p.n, held(p.c), p.type_d);
  image.bias_offset = builder.Bytes(p.bias_length() * SizeOf(p.type_d));
  static_assert(kReadBeyond <= kPartAlignment);  // at least the counters follow A and B
  image.counters_offset = builder.Bytes(kStallBytes);
  image.d = builder.Matrix(p.m, p.n, p.batch, p.type_d);
  if (!builder.end()) {
    return ResourceExhausted(ToString(p) + " exceeds the limit of 2^63-1 bytes of device memory");
  }
  image.bytes = *builder.end();
  return image;
}

void FillImage(const GemmProblem& p, const HostOperands& operands, const DeviceImage& image,
               std::byte* image_base) {
  FillMatrix(image.a, image_base, p.a, operands.a, p.type_a);
  FillMatrix(image.b, image_base, p.b, operands.b, p.type_b);
  FillMatrix(image.c, image_base, p.c, operands.c, p.type_d);
  if (const int64_t bytes = p.bias_length() * SizeOf(p.type_d); bytes > 0) {
    std::memcpy(image_base + image.bias_offset, operands.bias, static_cast<size_t>(bytes));
  }
  std::memset(image_base + image.counters_offset, 0, size_t{kStallBytes});
}

void ReadResult(const GemmProblem& p, const DeviceImage& image, const std::byte* image_base,
                const HostOperands& operands) {
  const int64_t size = SizeOf(p.type_d);
  for (int64_t i = 0; i < p.batch; ++i) {
    CopyRows(operands.d + i * p.m * p.n * size, p.n,
             image_base + image.d.offset + i * image.d.batch_stride * size, image.d.ld, p.m, p.n,
             size);
  }
}

}  // namespace gemmd
