// The product itself on a CPU, for one lane.
//
// f32 and f64 go to OpenBLAS where they lie. Everything else, and operands that BLAS cannot address
// (a leading dimension beyond 2^31 - 1, an address not aligned to its type), is copied panel by
// panel into fp32 (f64: fp64) scratch: f16 and bf16 are widened and rounded once at the end; i8 is
// multiplied in fp32 over K panels so short that every partial sum is exact, and summed in int32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"

namespace gemmd {

// Grows and never shrinks; contents are lost when it grows. Throws std::bad_alloc.
class ScratchBuffer {
 public:
  template <typename T>
  T* Get(int64_t count) {
    return reinterpret_cast<T*>(Reserve(static_cast<size_t>(count) * sizeof(T)));
  }

 private:
  std::byte* Reserve(size_t bytes);

  std::unique_ptr<std::byte[]> data_;
  size_t size_ = 0;
};

// Confined to one thread. Holds at most 12 MiB of scratch plus one row of D and one bias vector (24
// MiB for f64), whatever the size of the problem.
class CpuGemm {
 public:
  // OK: D is complete. UNIMPLEMENTED for types or modes without a CPU path, RESOURCE_EXHAUSTED when
  // there is no memory for the scratch, CANCELLED when `stop` was requested, which is looked at
  // between products of a batch and between the blocks of one, each some tenths of a second of one
  // core at most, whatever the problem; the content of D is unspecified then.
  Status Run(const GemmProblem& problem, const HostOperands& operands,
             const std::stop_token& stop = {});

 private:
  // What a batch shares: the bias, widened once.
  template <typename T>
  void RunFloats(const GemmProblem& problem, const HostOperands& operands,
                 const std::stop_token& stop);
  // The product at `index` of the batch.
  template <typename T>
  void RunFloat(const GemmProblem& problem, const HostOperands& operands, int64_t index,
                const T* bias, const std::stop_token& stop);
  void RunInt8(const GemmProblem& problem, const HostOperands& operands, int64_t index,
               const std::stop_token& stop);

  ScratchBuffer a_, b_, product_, c_row_, bias_;
};

// The kernels that OpenBLAS chose for this processor: "SkylakeX".
const char* BlasCoreName();

// Threads that one product may use from now on. For the whole process: not while a product runs.
void SetBlasThreads(int threads);

}  // namespace gemmd
