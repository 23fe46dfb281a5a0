#include "kernels/cuda/tensor_map.h"

#include <string>

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_status.h"

namespace gemmd {
namespace {

using EncodeFn = decltype(&cuTensorMapEncodeTiled);

// By name at run time, so that the program starts on a host without a driver.
StatusOr<EncodeFn> LookUpEncode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  RETURN_IF_CUDA_ERROR(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                        cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    return Unavailable("the driver has no cuTensorMapEncodeTiled");
  }
  return reinterpret_cast<EncodeFn>(function);
}

CUtensorMapDataType DataType(DType type) {
  switch (type) {
    case DType::kF16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kF32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    default: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  }
}

}  // namespace

StatusOr<CUtensorMap> MakeTensorMap(const TensorMapSpec& spec) {
  static const StatusOr<EncodeFn> kEncode = LookUpEncode();
  if (!kEncode.ok()) return kEncode.status();
  const auto size = static_cast<uint64_t>(SizeOf(spec.type));
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(spec.cols), static_cast<cuuint64_t>(spec.rows),
                             static_cast<cuuint64_t>(spec.matrices)};
  const int64_t matrix_stride = spec.matrices > 1 ? spec.matrix_stride : spec.ld;
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(spec.ld) * size,
                                static_cast<cuuint64_t>(matrix_stride) * size};
  const cuuint32_t box[] = {
      static_cast<cuuint32_t>(spec.box_row_bytes) / static_cast<cuuint32_t>(size),
      static_cast<cuuint32_t>(spec.box_rows), 1};
  const cuuint32_t element_strides[] = {1, 1, 1};
  CUtensorMap map{};
  const CUresult result =
      (*kEncode)(&map, DataType(spec.type), 3, const_cast<void*>(spec.base), dims, strides, box,
                 element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
                 spec.box_row_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return Internal("cuTensorMapEncodeTiled refused " + std::to_string(spec.rows) + "x" +
                    std::to_string(spec.cols) + " ld " + std::to_string(spec.ld) + ": error " +
                    std::to_string(static_cast<int>(result)));
  }
  return map;
}

}  // namespace gemmd
