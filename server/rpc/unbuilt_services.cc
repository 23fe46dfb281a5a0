#include "server/rpc/unbuilt_services.h"

#include "server/rpc/refuse.h"

namespace gemmd {
namespace {

Status NoTensors() {
  return Unimplemented(
      "this server has no resident tensors; send operands inline to "
      "GemmService.Gemm");
}

Status NoSharedMemory() {
  return Unimplemented(
      "this server has no shared memory; send operands inline to "
      "GemmService.Gemm");
}

}  // namespace

grpc::ServerReadReactor<v1::PutTensorRequest>* UnbuiltTensorService::PutTensor(
    grpc::CallbackServerContext*, v1::TensorInfo*) {
  return RefuseRead<v1::PutTensorRequest>(NoTensors());
}

grpc::ServerWriteReactor<v1::TensorChunk>* UnbuiltTensorService::GetTensor(
    grpc::CallbackServerContext*, const v1::GetTensorRequest*) {
  return RefuseWrite<v1::TensorChunk>(NoTensors());
}

grpc::ServerUnaryReactor* UnbuiltTensorService::StatTensor(grpc::CallbackServerContext* context,
                                                           const v1::StatTensorRequest*,
                                                           v1::TensorInfo*) {
  return FinishUnary(context, NoTensors());
}

grpc::ServerUnaryReactor* UnbuiltTensorService::ListTensors(grpc::CallbackServerContext* context,
                                                            const v1::ListTensorsRequest*,
                                                            v1::ListTensorsResponse*) {
  return FinishUnary(context, NoTensors());
}

grpc::ServerUnaryReactor* UnbuiltTensorService::DeleteTensor(grpc::CallbackServerContext* context,
                                                             const v1::DeleteTensorRequest*,
                                                             v1::DeleteTensorResponse*) {
  return FinishUnary(context, NoTensors());
}

grpc::ServerUnaryReactor* UnbuiltSharedMemoryService::RegisterSharedMemory(
    grpc::CallbackServerContext* context, const v1::RegisterSharedMemoryRequest*,
    v1::SharedMemoryRegion*) {
  return FinishUnary(context, NoSharedMemory());
}

grpc::ServerUnaryReactor* UnbuiltSharedMemoryService::UnregisterSharedMemory(
    grpc::CallbackServerContext* context, const v1::UnregisterSharedMemoryRequest*,
    v1::UnregisterSharedMemoryResponse*) {
  return FinishUnary(context, NoSharedMemory());
}

grpc::ServerUnaryReactor* UnbuiltSharedMemoryService::ListSharedMemory(
    grpc::CallbackServerContext* context, const v1::ListSharedMemoryRequest*,
    v1::ListSharedMemoryResponse*) {
  return FinishUnary(context, NoSharedMemory());
}

}  // namespace gemmd
