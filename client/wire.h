// The client's side of proto/gemmd/v1: plain structs to messages and back. Internal to the client.
#pragma once

#include <optional>

#include <grpcpp/support/status.h>

#include "client/gemm_client.h"
#include "gemmd/v1/gemm.pb.h"
#include "gemmd/v1/server.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "proto/convert.h"

namespace gemmd::wire {

// INVALID_ARGUMENT for text that is not UTF-8: protobuf sends it, and no server can parse that.
Status CheckText(const std::string& field, std::string_view text);
Status CheckText(const CallOptions& options);  // those of its fields that are sent

// The gRPC status with its google.rpc details: the field at fault and the time to wait.
Status FromGrpc(const grpc::Status& status);

void ToProto(const CallOptions& options, v1::PlanOptions* out);

// Without attempts and round trip, which the client knows.
ClientResult FromProto(const v1::Execution& execution);
ClientServerInfo FromProto(const v1::ServerInfo& info);
ClientKernel FromProto(const v1::Kernel& kernel);
ClientPlan FromProto(const v1::Plan& plan);
ClientStatistics FromProto(const v1::Statistics& statistics);
Serving FromProto(grpc::health::v1::HealthCheckResponse::ServingStatus status);

// INVALID_ARGUMENT for a budget that is no time.
Status ToProto(const ClientTuneRequest& request, v1::TuneRequest* out);
void ToProto(const ClientStudyRequest& request, v1::StudyRequest* out);
// INVALID_ARGUMENT for a duration that no profile may have.
Status ToProto(const ClientProfileRequest& request, v1::ProfileRequest* out);
ClientProfile FromProto(const v1::ProfileResponse& response);
// With packed layouts; nullopt for an extent or an enum's value that this client does not know.
std::optional<GemmProblem> FromProto(const v1::Problem& problem);
ClientTuneProgress FromProto(const v1::TuneProgress& progress);
// INTERNAL where it does not say which problem it is of.
StatusOr<ClientStudyPoint> FromProto(const v1::StudyPoint& point);

// One operand as it goes over the wire.
struct Operand {
  std::string_view field;  // "a"
  MatrixLayout layout;     // as the caller stores it
  MatrixLayout sent;       // as it is sent
  int64_t batch = 0;       // matrices sent: 1 when the batch shares one
  DType type{};
  const std::byte* data = nullptr;
  int64_t bytes = 0;  // sent
};

// How an operand is sent: packed, unless `keep_padding` or there is nothing to pack.
// INVALID_ARGUMENT when `data` is null where bytes are needed.
StatusOr<Operand> PlanOperand(std::string_view field, const MatrixLayout& layout, int64_t batch,
                              DType type, const std::byte* data, bool keep_padding);
// Copies the elements: operand.bytes are allocated.
void Fill(const Operand& operand, v1::Matrix* out);

}  // namespace gemmd::wire
