// cuBLASLt as the peer: the same product, types in and out, and fp32 accumulation, on the same
// row-major operands.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <cublasLt.h>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/cuda/handles.h"
#include "tests/bench/operands.h"

namespace gemmd::bench {

// A handle and its workspace on the current device. One stream at a time may use it.
class CublasLt {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  static StatusOr<CublasLt> Create();

  cublasLtHandle_t handle() const { return handle_.get(); }
  void* workspace() const { return workspace_.get(); }

 private:
  struct Destroyer {
    void operator()(cublasLtHandle_t handle) const { (void)cublasLtDestroy(handle); }
  };

  CublasLt() = default;

  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroyer> handle_;
  DeviceBuffer workspace_;
};

// One product, or a batch of them, on one set of leading dimensions. `library` must outlive it.
class PeerProduct {
 public:
  static constexpr int kMaxAlgorithms = 32;

  PeerProduct(const PeerProduct&) = delete;  // the library's descriptors stay where they were made
  PeerProduct& operator=(const PeerProduct&) = delete;

  // What the heuristic offers for these leading dimensions and strides, its own first choice first.
  // UNIMPLEMENTED when it offers nothing. Preconditions: A, B and D are all bf16, all f16 or all
  // f32 (multiplied as IEEE says); alpha is 1, beta 0, no bias and no activation;
  // operands start on 256-byte boundaries.
  static StatusOr<std::unique_ptr<PeerProduct>> Create(const CublasLt& library,
                                                       const GemmProblem& problem,
                                                       const DeviceOperands& operands);

  int algorithms() const { return static_cast<int>(algorithms_.size()); }
  // Precondition: 0 <= algorithm < algorithms().
  Status Enqueue(int algorithm, const DeviceOperands& operands, cudaStream_t stream) const;

 private:
  explicit PeerProduct(const CublasLt& library) : library_(&library) {}

  Status Describe(const GemmProblem& problem, const DeviceOperands& operands);
  Status FindAlgorithms(const GemmProblem& problem);

  const CublasLt* library_;
  // The library takes pointers that are not const, but does not write to these.
  mutable cublasLtMatmulDescOpaque_t product_{};
  mutable cublasLtMatrixLayoutOpaque_t first_{}, second_{}, result_{};  // as column-major matrices
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace gemmd::bench
