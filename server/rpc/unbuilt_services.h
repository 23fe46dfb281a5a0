// The services of gemmd.v1 that this server announces and does not have: every call ends with
// UNIMPLEMENTED and says what to use instead. Registered, so that reflection shows the whole API.
#pragma once

#include "gemmd/v1/shared_memory.grpc.pb.h"
#include "gemmd/v1/tensor.grpc.pb.h"

namespace gemmd {

class UnbuiltTensorService final : public v1::TensorService::CallbackService {
 public:
  grpc::ServerReadReactor<v1::PutTensorRequest>* PutTensor(grpc::CallbackServerContext* context,
                                                           v1::TensorInfo* response) override;
  grpc::ServerWriteReactor<v1::TensorChunk>* GetTensor(
      grpc::CallbackServerContext* context, const v1::GetTensorRequest* request) override;
  grpc::ServerUnaryReactor* StatTensor(grpc::CallbackServerContext* context,
                                       const v1::StatTensorRequest* request,
                                       v1::TensorInfo* response) override;
  grpc::ServerUnaryReactor* ListTensors(grpc::CallbackServerContext* context,
                                        const v1::ListTensorsRequest* request,
                                        v1::ListTensorsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteTensor(grpc::CallbackServerContext* context,
                                         const v1::DeleteTensorRequest* request,
                                         v1::DeleteTensorResponse* response) override;
};

class UnbuiltSharedMemoryService final : public v1::SharedMemoryService::CallbackService {
 public:
  grpc::ServerUnaryReactor* RegisterSharedMemory(grpc::CallbackServerContext* context,
                                                 const v1::RegisterSharedMemoryRequest* request,
                                                 v1::SharedMemoryRegion* response) override;
  grpc::ServerUnaryReactor* UnregisterSharedMemory(
      grpc::CallbackServerContext* context, const v1::UnregisterSharedMemoryRequest* request,
      v1::UnregisterSharedMemoryResponse* response) override;
  grpc::ServerUnaryReactor* ListSharedMemory(grpc::CallbackServerContext* context,
                                             const v1::ListSharedMemoryRequest* request,
                                             v1::ListSharedMemoryResponse* response) override;
};

}  // namespace gemmd
