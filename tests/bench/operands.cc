#include "tests/bench/operands.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/cuda_status.h"
#include "kernels/plan/kernel_config.h"

namespace gemmd::bench {
namespace {

constexpr int64_t kMemoryLimitBytes = int64_t{24} << 30;
constexpr int64_t kMaxSets = 4096;
constexpr int64_t kSetShift = 1000003;  // elements between the starts of two fills
constexpr int64_t kPartAlignment = 256;
constexpr int64_t kRowAlignment = 16;

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

size_t Bytes(int64_t bytes) { return static_cast<size_t>(bytes); }

}  // namespace

StatusOr<OperandSets> OperandSets::Create(const GemmProblem& problem, int64_t l2_bytes,
                                          const RandomPattern& pattern) {
  OperandSets result;
  result.problem_ = problem;
  ASSIGN_OR_RETURN(const DeviceImage image, ImageOf(problem));
  result.pitched_ = {image.a, image.b, image.d};
  result.counters_offset_ = image.counters_offset;
  int64_t end = image.bytes;
  const int64_t size = SizeOf(pattern.type());
  int64_t touched = 0;
  bool padded = false;
  const auto pack = [&](const ImageMatrix& pitched, int64_t rows, int64_t cols) {
    ImageMatrix packed = pitched;
    const int64_t bytes = problem.batch * rows * cols * size;
    touched += bytes;
    result.unaligned_rows_ |= cols * size % kRowAlignment != 0;
    if (pitched.ld == cols) return packed;
    padded = true;
    packed.ld = cols;
    packed.batch_stride = rows * cols;
    packed.offset = end;
    end += RoundUp(bytes, kPartAlignment);
    return packed;
  };
  result.packed_.a = pack(image.a, problem.a.rows, problem.a.cols);
  result.packed_.b = pack(image.b, problem.b.rows, problem.b.cols);
  result.packed_.d = pack(image.d, problem.m, problem.n);
  result.set_bytes_ = end;
  const int64_t fit = kMemoryLimitBytes / end;
  if (fit < 1) {
    return ResourceExhausted(ToString(problem) + " needs " + std::to_string(end) +
                             " bytes, above the limit " + std::to_string(kMemoryLimitBytes));
  }
  const int64_t wanted = std::clamp<int64_t>(3 * l2_bytes / touched + 1, 2, kMaxSets);
  result.sets_ = static_cast<int>(std::min(wanted, fit));
  ASSIGN_OR_RETURN(result.workspace_, MakeDeviceBuffer(kWorkspaceBytes));
  ASSIGN_OR_RETURN(result.memory_, MakeDeviceBuffer(result.set_bytes_ * result.sets_));
  // 0xff bytes are NaN in every type here.
  RETURN_IF_CUDA_ERROR(
      cudaMemset(result.memory_.get(), 0xff, Bytes(result.set_bytes_ * result.sets_)));
  for (int set = 0; set < result.sets_; ++set) RETURN_IF_ERROR(result.FillSet(set, pattern));
  RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return result;
}

Status OperandSets::FillSet(int index, const RandomPattern& pattern) const {
  const int64_t size = SizeOf(pattern.type());
  const auto fill = [&](const MatrixLayout& layout, const ImageMatrix& packed,
                        const ImageMatrix& pitched, int64_t first) {
    std::byte* const values = Base(index) + packed.offset;
    const int64_t rows = problem_.batch * layout.rows;
    RETURN_IF_ERROR(pattern.Fill(values, rows * layout.cols, first));
    if (pitched.offset == packed.offset) return OkStatus();
    return CudaStatus(
        cudaMemcpy2DAsync(Base(index) + pitched.offset, Bytes(pitched.ld * size), values,
                          Bytes(layout.cols * size), Bytes(layout.cols * size), Bytes(rows),
                          cudaMemcpyDeviceToDevice, nullptr),
        "cudaMemcpy2DAsync");
  };
  const int64_t first = 2 * index * kSetShift;
  RETURN_IF_ERROR(fill(problem_.a, packed_.a, pitched_.a, first));
  RETURN_IF_ERROR(fill(problem_.b, packed_.b, pitched_.b, first + kSetShift));
  return CudaStatus(cudaMemsetAsync(Counters(index), 0, kStallBytes, nullptr), "cudaMemsetAsync");
}

std::byte* OperandSets::Base(int index) const {
  return static_cast<std::byte*>(memory_.get()) + index % sets_ * set_bytes_;
}

DeviceOperands OperandSets::At(Form form, int index) const {
  const Layout& layout = LayoutOf(form);
  std::byte* const base = Base(index);
  return {.a = base + layout.a.offset,
          .b = base + layout.b.offset,
          .d = base + layout.d.offset,
          .lda = layout.a.ld,
          .ldb = layout.b.ld,
          .ldd = layout.d.ld,
          .stride_a = layout.a.batch_stride,
          .stride_b = layout.b.batch_stride,
          .stride_d = layout.d.batch_stride};
}

GemmParams OperandSets::Params(int index) const {
  const DeviceOperands operands = At(Form::kPitched, index);
  GemmParams params;
  params.a = operands.a, params.lda = operands.lda, params.stride_a = operands.stride_a;
  params.b = operands.b, params.ldb = operands.ldb, params.stride_b = operands.stride_b;
  params.d = operands.d, params.ldd = operands.ldd, params.stride_d = operands.stride_d;
  params.workspace = workspace_.get();
  return params;
}

unsigned long long* OperandSets::Counters(int index) const {
  return reinterpret_cast<unsigned long long*>(Base(index) + counters_offset_);
}

Status OperandSets::PoisonResult(Form form) const {
  const DeviceOperands set = At(form, 0);
  RETURN_IF_CUDA_ERROR(cudaMemset(
      set.d, 0xff, Bytes(problem_.batch * problem_.m * set.ldd * SizeOf(problem_.type_d))));
  return CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Status OperandSets::DownloadOperands(int64_t product, std::vector<std::byte>& a,
                                     std::vector<std::byte>& b) const {
  const DeviceOperands set = At(Form::kPacked, 0);
  a.resize(Bytes(problem_.a.rows * problem_.a.cols * SizeOf(problem_.type_a)));
  b.resize(Bytes(problem_.b.rows * problem_.b.cols * SizeOf(problem_.type_b)));
  RETURN_IF_CUDA_ERROR(cudaMemcpy(a.data(), set.a + product * static_cast<int64_t>(a.size()),
                                  a.size(), cudaMemcpyDeviceToHost));
  RETURN_IF_CUDA_ERROR(cudaMemcpy(b.data(), set.b + product * static_cast<int64_t>(b.size()),
                                  b.size(), cudaMemcpyDeviceToHost));
  return OkStatus();
}

StatusOr<std::vector<std::byte>> OperandSets::DownloadRows(Form form, int64_t product,
                                                           const std::vector<int64_t>& rows) const {
  const DeviceOperands set = At(form, 0);
  const int64_t size = SizeOf(problem_.type_d), row_bytes = problem_.n * size;
  const std::byte* const d = set.d + product * set.stride_d * size;
  std::vector<std::byte> values(rows.size() * Bytes(row_bytes));
  for (size_t i = 0; i < rows.size(); ++i) {
    RETURN_IF_CUDA_ERROR(cudaMemcpy(values.data() + i * Bytes(row_bytes),
                                    d + rows[i] * set.ldd * size, Bytes(row_bytes),
                                    cudaMemcpyDeviceToHost));
  }
  return values;
}

}  // namespace gemmd::bench
