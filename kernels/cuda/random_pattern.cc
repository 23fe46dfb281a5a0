#include "kernels/cuda/random_pattern.h"

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/core/numeric.h"
#include "kernels/cuda/cuda_status.h"

namespace gemmd {

StatusOr<RandomPattern> RandomPattern::Create(DType type, uint64_t seed, int64_t elements) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(elements));
  for (float& value : values) value = normal(random);
  const int64_t bytes = elements * SizeOf(type);
  std::vector<std::byte> narrow(static_cast<size_t>(bytes));
  NarrowFromFloat(values.data(), type, elements, narrow.data());
  RandomPattern pattern(type, elements);
  ASSIGN_OR_RETURN(pattern.values_, MakeDeviceBuffer(bytes));
  RETURN_IF_CUDA_ERROR(
      cudaMemcpy(pattern.values_.get(), narrow.data(), narrow.size(), cudaMemcpyHostToDevice));
  return pattern;
}

Status RandomPattern::Fill(std::byte* device, int64_t count, int64_t first) const {
  const int64_t size = SizeOf(type_);
  const auto* values = static_cast<const std::byte*>(values_.get());
  for (int64_t done = 0; done < count;) {
    const int64_t from = (first + done) % elements_;
    const int64_t run = std::min(count - done, elements_ - from);
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(device + done * size, values + from * size,
                                         static_cast<size_t>(run * size), cudaMemcpyDeviceToDevice,
                                         nullptr));
    done += run;
  }
  return OkStatus();
}

}  // namespace gemmd
