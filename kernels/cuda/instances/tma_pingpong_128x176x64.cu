#include "kernels/cuda/instances/tma_entry.cuh"

namespace gemmd {

template <>
const void* KernelEntry<RowByName("tma_pingpong_128x176x64")>(DType type, Op op_a, Op op_b) {
  return TmaEntry<RowByName("tma_pingpong_128x176x64")>(type, op_a, op_b);
}

}  // namespace gemmd
