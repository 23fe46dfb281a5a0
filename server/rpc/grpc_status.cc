#include "server/rpc/grpc_status.h"

#include "google/rpc/error_details.pb.h"
#include "server/rpc/codec.h"

namespace gemmd {
namespace {

constexpr bool Same(StatusCode ours, grpc::StatusCode theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(Same(StatusCode::kOk, grpc::StatusCode::OK));
static_assert(Same(StatusCode::kCancelled, grpc::StatusCode::CANCELLED));
static_assert(Same(StatusCode::kUnknown, grpc::StatusCode::UNKNOWN));
static_assert(Same(StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT));
static_assert(Same(StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED));
static_assert(Same(StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND));
static_assert(Same(StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS));
static_assert(Same(StatusCode::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED));
static_assert(Same(StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED));
static_assert(Same(StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION));
static_assert(Same(StatusCode::kAborted, grpc::StatusCode::ABORTED));
static_assert(Same(StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE));
static_assert(Same(StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED));
static_assert(Same(StatusCode::kInternal, grpc::StatusCode::INTERNAL));
static_assert(Same(StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE));
static_assert(Same(StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS));
static_assert(Same(StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED));

// Cuts between characters: half of one would make the protobuf string invalid.
std::string Capped(const std::string& message) {
  if (message.size() <= kMaxStatusMessageBytes) return message;
  size_t end = kMaxStatusMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  return message.substr(0, end);
}

}  // namespace

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = Capped(status.message());
  const auto code = static_cast<grpc::StatusCode>(status.code());
  if (status.field().empty() && !status.retry_after()) return {code, message};

  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  if (!status.field().empty()) {
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(status.field());
    violation->set_description(message);
    details.add_details()->PackFrom(bad_request);
  }
  if (status.retry_after()) {
    google::rpc::RetryInfo retry;
    *retry.mutable_retry_delay() = ToProto(*status.retry_after());
    details.add_details()->PackFrom(retry);
  }
  return {code, message, details.SerializeAsString()};
}

}  // namespace gemmd
