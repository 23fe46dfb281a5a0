#include "kernels/lab/lab_kernel.cuh"

namespace gemmd::lab {

const void* TmaEntry(Fault fault) { return EntryOf<TmaCopies>(fault); }

}  // namespace gemmd::lab
