#include "kernels/lab/lab_kernel.cuh"

namespace gemmd::lab {
namespace {

__global__ void __launch_bounds__(kFillThreads) FillArray(const __grid_constant__ FillParams p) {
  for (uint32_t place = blockIdx.x * kFillThreads + threadIdx.x; place < p.words;
       place += gridDim.x * kFillThreads) {
    p.array[place] = ArrayWord(p.seed, place);
  }
}

}  // namespace

const void* CpAsyncEntry(Fault fault, bool traced) { return EntryOf<CpAsyncCopies>(fault, traced); }
const void* FillEntry() { return reinterpret_cast<const void*>(&FillArray); }

}  // namespace gemmd::lab
