#include "tests/bench/cublaslt_peer.h"

#include <array>
#include <string>

namespace gemmd::bench {
namespace {

Status LibraryStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return OkStatus();
  const std::string message = std::string(what) + ": " + cublasLtGetStatusName(status);
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? Unimplemented(message) : Internal(message);
}
#define RETURN_IF_LIBRARY_ERROR(expr) RETURN_IF_ERROR(LibraryStatus((expr), #expr))

cudaDataType_t LibraryType(DType type) {
  switch (type) {
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

cublasOperation_t LibraryOp(Op op) { return op == Op::kN ? CUBLAS_OP_N : CUBLAS_OP_T; }

// A batch of row-major (rows, cols) matrices, read as the column-major (cols, rows) ones that they
// also are. `stride` is in elements.
Status DescribeMatrices(cublasLtMatrixLayoutOpaque_t& to, DType type, int64_t rows, int64_t cols,
                        int64_t ld, int64_t batch, int64_t stride) {
  RETURN_IF_LIBRARY_ERROR(cublasLtMatrixLayoutInit(
      &to, LibraryType(type), static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), ld));
  if (batch == 1) return OkStatus();
  const auto count = static_cast<int32_t>(batch);
  RETURN_IF_LIBRARY_ERROR(cublasLtMatrixLayoutSetAttribute(&to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                           &count, sizeof(count)));
  return LibraryStatus(
      cublasLtMatrixLayoutSetAttribute(&to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                       sizeof(stride)),
      "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET");
}

}  // namespace

StatusOr<CublasLt> CublasLt::Create() {
  CublasLt library;
  cublasLtHandle_t handle = nullptr;
  RETURN_IF_LIBRARY_ERROR(cublasLtCreate(&handle));
  library.handle_.reset(handle);
  ASSIGN_OR_RETURN(library.workspace_, MakeDeviceBuffer(int64_t{kWorkspaceBytes}));
  return library;
}

StatusOr<std::unique_ptr<PeerProduct>> PeerProduct::Create(const CublasLt& library,
                                                           const GemmProblem& problem,
                                                           const DeviceOperands& operands) {
  std::unique_ptr<PeerProduct> peer(new PeerProduct(library));
  RETURN_IF_ERROR(peer->Describe(problem, operands));
  RETURN_IF_ERROR(peer->FindAlgorithms(problem));
  return peer;
}

// The library's matrices are column-major, and D^T = op(B)^T op(A)^T: what it calls A is our B.
Status PeerProduct::Describe(const GemmProblem& p, const DeviceOperands& operands) {
  const cublasComputeType_t compute =
      p.type_a == DType::kF32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
  RETURN_IF_LIBRARY_ERROR(cublasLtMatmulDescInit(&product_, compute, CUDA_R_32F));
  const cublasOperation_t first_op = LibraryOp(p.op_b), second_op = LibraryOp(p.op_a);
  RETURN_IF_LIBRARY_ERROR(cublasLtMatmulDescSetAttribute(&product_, CUBLASLT_MATMUL_DESC_TRANSA,
                                                         &first_op, sizeof(first_op)));
  RETURN_IF_LIBRARY_ERROR(cublasLtMatmulDescSetAttribute(&product_, CUBLASLT_MATMUL_DESC_TRANSB,
                                                         &second_op, sizeof(second_op)));
  RETURN_IF_ERROR(DescribeMatrices(first_, p.type_b, p.b.rows, p.b.cols, operands.ldb, p.batch,
                                   operands.stride_b));
  RETURN_IF_ERROR(DescribeMatrices(second_, p.type_a, p.a.rows, p.a.cols, operands.lda, p.batch,
                                   operands.stride_a));
  return DescribeMatrices(result_, p.type_d, p.m, p.n, operands.ldd, p.batch, operands.stride_d);
}

Status PeerProduct::FindAlgorithms(const GemmProblem& p) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  RETURN_IF_LIBRARY_ERROR(cublasLtMatmulPreferenceInit(&preference));
  const size_t workspace = CublasLt::kWorkspaceBytes;
  RETURN_IF_LIBRARY_ERROR(cublasLtMatmulPreferenceSetAttribute(
      &preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)));
  std::array<cublasLtMatmulHeuristicResult_t, kMaxAlgorithms> found{};
  int count = 0;
  RETURN_IF_LIBRARY_ERROR(cublasLtMatmulAlgoGetHeuristic(library_->handle(), &product_, &first_,
                                                         &second_, &result_, &result_, &preference,
                                                         kMaxAlgorithms, found.data(), &count));
  for (int i = 0; i < count; ++i) {
    const auto& result = found[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms_.push_back(result.algo);
  }
  if (algorithms_.empty()) return Unimplemented("cuBLASLt offers nothing for " + ToString(p));
  return OkStatus();
}

Status PeerProduct::Enqueue(int algorithm, const DeviceOperands& operands,
                            cudaStream_t stream) const {
  const float alpha = 1.0F, beta = 0.0F;
  return LibraryStatus(cublasLtMatmul(library_->handle(), &product_, &alpha, operands.b, &first_,
                                      operands.a, &second_, &beta, operands.d, &result_, operands.d,
                                      &result_, &algorithms_[static_cast<size_t>(algorithm)],
                                      library_->workspace(), CublasLt::kWorkspaceBytes, stream),
                       "cublasLtMatmul");
}

}  // namespace gemmd::bench
