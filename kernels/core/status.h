// Error values. No exception crosses a module boundary: fallible functions return Status or
// StatusOr<T>, and server/rpc/grpc_status.cc translates them to gRPC once, at the edge.
//
//   StatusOr<int64_t> bytes = StorageBytes(...);
//   if (!bytes.ok()) return bytes.status();
//   RETURN_IF_ERROR(Launch(*bytes));
//
// A message names the field, the value and the limit: "a.ld=3 is below its row length 4".
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace gemmd {

// The numbers are gRPC's (server/rpc/grpc_status.cc asserts it).
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "INVALID_ARGUMENT" and so on: gRPC's spelling, used in logs, metrics labels and the CLI.
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The request field at fault ("a.ld"); empty when the error is not about one field.
  const std::string& field() const { return field_; }
  // How long the caller should wait before it tries again; absent when a retry cannot help.
  std::optional<std::chrono::milliseconds> retry_after() const { return retry_after_; }

  // By value, so that `s = std::move(s).WithField(f)` does not move an object onto itself.
  Status WithField(std::string field) && {
    field_ = std::move(field);
    return std::move(*this);
  }
  Status WithRetryAfter(std::chrono::milliseconds delay) && {
    retry_after_ = delay;
    return std::move(*this);
  }

  // "INVALID_ARGUMENT: a.ld=3 ..."; "OK".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string field_;
  std::optional<std::chrono::milliseconds> retry_after_;
};

inline Status OkStatus() { return {}; }
// `field` is the name on the wire; the message must name it too.
Status InvalidArgument(std::string field, std::string message);
Status OutOfRange(std::string field, std::string message);
Status Unimplemented(std::string message);
Status ResourceExhausted(std::string message);
Status FailedPrecondition(std::string message);
Status Internal(std::string message);
Status Unavailable(std::string message);
Status Cancelled(std::string message);
Status DeadlineExceeded(std::string message);
Status NotFound(std::string message);

template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  StatusOr(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }  // OK iff ok()

  // Precondition of all: ok().
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

#define RETURN_IF_ERROR(expr)                                            \
  do {                                                                   \
    if (::gemmd::Status status_ = (expr); !status_.ok()) return status_; \
  } while (false)

#define GEMMD_CONCAT_INNER(a, b) a##b
#define GEMMD_CONCAT(a, b) GEMMD_CONCAT_INNER(a, b)
// ASSIGN_OR_RETURN(const int64_t bytes, StorageBytes(...));
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL(GEMMD_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                          \
  if (!tmp.ok()) return tmp.status();         \
  lhs = *std::move(tmp)

}  // namespace gemmd
