#include "kernels/cuda/instances/mma_entry.cuh"

namespace gemmd {

template <>
const void* KernelEntry<RowByName("cp_async_32x32x32")>(DType type, Op op_a, Op op_b) {
  return MmaEntry<RowByName("cp_async_32x32x32")>(type, op_a, op_b);
}

}  // namespace gemmd
