#include "tests/bench/operands.h"

#include <algorithm>
#include <cstddef>
#include <random>

#include "kernels/core/numeric.h"
#include "kernels/cuda/cuda_status.h"

namespace gemmd::bench {
namespace {

constexpr int64_t kMaxSets = 64;
constexpr int64_t kPatternElements = 8 << 20;  // distinct values; longer operands repeat them

// Fills `count` elements at `device` with the pattern, from a place in it that differs by operand.
Status FillDevice(std::byte* device, int64_t count, DType type,
                  const std::vector<std::byte>& pattern, int64_t first) {
  const int64_t size = SizeOf(type);
  for (int64_t done = 0; done < count;) {
    const int64_t from = (first + done) % kPatternElements;
    const int64_t run = std::min(count - done, kPatternElements - from);
    RETURN_IF_CUDA_ERROR(cudaMemcpy(device + done * size, pattern.data() + from * size,
                                    static_cast<size_t>(run * size), cudaMemcpyHostToDevice));
    done += run;
  }
  return OkStatus();
}

std::vector<std::byte> MakePattern(DType type, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kPatternElements);
  for (float& value : values) value = normal(random);
  std::vector<std::byte> pattern(static_cast<size_t>(kPatternElements * SizeOf(type)));
  NarrowFromFloat(values.data(), type, kPatternElements, pattern.data());
  return pattern;
}

}  // namespace

StatusOr<OperandSets> OperandSets::Create(const GemmProblem& problem, int64_t l2_bytes,
                                          uint64_t seed) {
  OperandSets result;
  ASSIGN_OR_RETURN(result.image_, ImageOf(problem));
  const DeviceImage& image = result.image_;
  const std::vector<std::byte> pattern = MakePattern(problem.type_a, seed);
  const int64_t sets = std::clamp<int64_t>(3 * l2_bytes / image.bytes + 1, 2, kMaxSets);
  for (int64_t set = 0; set < sets; ++set) {
    ASSIGN_OR_RETURN(DeviceBuffer buffer, MakeDeviceBuffer(image.bytes));
    auto* base = static_cast<std::byte*>(buffer.get());
    RETURN_IF_CUDA_ERROR(cudaMemset(base, 0, static_cast<size_t>(image.bytes)));
    const auto fill = [&](const ImageMatrix& m, const MatrixLayout& layout) {
      const int64_t count = m.matrices * layout.rows * m.ld;
      return FillDevice(base + m.offset, count, problem.type_a, pattern, m.offset / 2 + set * 4099);
    };
    RETURN_IF_ERROR(fill(image.a, problem.a));
    RETURN_IF_ERROR(fill(image.b, problem.b));
    result.sets_.push_back(std::move(buffer));
  }
  return result;
}

GemmParams OperandSets::Params(int index) const {
  auto* base = static_cast<std::byte*>(sets_[static_cast<size_t>(index % sets())].get());
  GemmParams params;
  params.a = base + image_.a.offset;
  params.b = base + image_.b.offset;
  params.d = base + image_.d.offset;
  params.lda = image_.a.ld, params.stride_a = image_.a.batch_stride;
  params.ldb = image_.b.ld, params.stride_b = image_.b.batch_stride;
  params.ldd = image_.d.ld, params.stride_d = image_.d.batch_stride;
  return params;
}

unsigned long long* OperandSets::Counters(int index) const {
  auto* base = static_cast<std::byte*>(sets_[static_cast<size_t>(index % sets())].get());
  return reinterpret_cast<unsigned long long*>(base + image_.counters_offset);
}

}  // namespace gemmd::bench
