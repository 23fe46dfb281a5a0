#include "kernels/lab/lab_kernel.cuh"

namespace gemmd::lab {

const void* TmaEntry(Fault fault, bool traced) { return EntryOf<TmaCopies>(fault, traced); }

}  // namespace gemmd::lab
