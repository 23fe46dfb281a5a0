#include "server/rpc/grpc_status.h"

#include <string>

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"

namespace gemmd {
namespace {

TEST(GrpcStatusTest, FieldAndRetryGoIntoTheDetails) {
  const grpc::Status status = ToGrpcStatus(
      InvalidArgument("a.ld", "a.ld=3 is below 4").WithRetryAfter(std::chrono::milliseconds(2500)));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "a.ld=3 is below 4");
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), 3);
  ASSERT_EQ(details.details_size(), 2);
  google::rpc::BadRequest bad;
  ASSERT_TRUE(details.details(0).UnpackTo(&bad));
  EXPECT_EQ(bad.field_violations(0).field(), "a.ld");
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 2);
  EXPECT_EQ(retry.retry_delay().nanos(), 500'000'000);
}

TEST(GrpcStatusTest, LongMessageIsCutBetweenCharacters) {
  std::string text(kMaxStatusMessageBytes - 1, 'x');
  const grpc::Status status = ToGrpcStatus(Internal(text + "\xC3\xA9 tail"));
  EXPECT_EQ(status.error_message(), text);
  EXPECT_TRUE(status.error_details().empty());
  EXPECT_TRUE(ToGrpcStatus(OkStatus()).ok());
}

}  // namespace
}  // namespace gemmd
