// Profile's messages and the stalls of Statistics, decoded and encoded.
#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/rpc/codec.h"

namespace gemmd {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

v1::ProfileRequest MakeRequest() {
  v1::ProfileRequest request;
  request.mutable_problem()->set_m(5);
  request.mutable_problem()->set_n(7);
  request.mutable_problem()->set_k(11);
  request.mutable_problem()->set_type_a(v1::DATA_TYPE_BF16);
  return request;
}

// Of a request with that duration.
StatusOr<DecodedProfile> WithDuration(int64_t seconds, int32_t nanos) {
  v1::ProfileRequest request = MakeRequest();
  request.mutable_duration()->set_seconds(seconds);
  request.mutable_duration()->set_nanos(nanos);
  return DecodeProfile(request);
}

// Reason -> samples, in the order of the message.
template <typename Message>
std::vector<std::pair<std::string, int64_t>> ReasonsOf(const Message& message) {
  std::vector<std::pair<std::string, int64_t>> out;
  for (const v1::StallSamples& one : message.reasons()) {
    out.emplace_back(one.reason(), one.samples());
  }
  return out;
}

TEST(ProfileCodecTest, WhatIsLeftOutIsOneSecondOfThePlannersChoice) {
  const StatusOr<DecodedProfile> decoded = DecodeProfile(MakeRequest());
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->problem.m, 5);
  EXPECT_EQ(decoded->problem.batch, 1);
  EXPECT_EQ(decoded->problem.a.ld, 11) << "packed";
  EXPECT_FALSE(decoded->constraints.any());
  EXPECT_EQ(decoded->duration, std::chrono::seconds(1));
}

TEST(ProfileCodecTest, PlanAndDurationAreRead) {
  v1::ProfileRequest request = MakeRequest();
  request.mutable_plan()->set_kernel(std::string(kKernelTable[2].name));
  request.mutable_plan()->set_stages(3);
  request.mutable_plan()->set_split_k(2);
  request.mutable_duration()->set_nanos(10'000'000);
  const StatusOr<DecodedProfile> decoded = DecodeProfile(request);
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->constraints.row, 2);
  EXPECT_EQ(decoded->constraints.stages, 3);
  EXPECT_EQ(decoded->constraints.split_k, 2);
  EXPECT_EQ(decoded->duration, milliseconds(10)) << "the least";
  EXPECT_EQ(WithDuration(60, 0)->duration, std::chrono::seconds(60)) << "the most";
}

TEST(ProfileCodecTest, RefusalsNameFieldValueAndLimit) {
  const auto refused = [](const v1::ProfileRequest& request) {
    const Status status = DecodeProfile(request).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::pair(status.field(), status.message());
  };
  EXPECT_THAT(refused({}), Pair("problem", "problem is missing: m, n, k and type_a at least"));
  v1::ProfileRequest bad = MakeRequest();
  bad.mutable_problem()->set_m(-1);
  EXPECT_EQ(refused(bad).first, "problem.m");
  EXPECT_THAT(refused(bad).second, ::testing::StartsWith("problem.m=-1 "));
  bad = MakeRequest();
  bad.mutable_problem()->clear_type_a();
  EXPECT_EQ(refused(bad).first, "problem.type_a");
  bad = MakeRequest();
  bad.mutable_plan()->set_kernel("no_such");
  EXPECT_THAT(refused(bad), Pair("plan.kernel",
                                 "plan.kernel=\"no_such\" is not a kernel; ListKernels names all " +
                                     std::to_string(kKernelRows)));
  bad = MakeRequest();
  bad.mutable_plan()->set_stages(-2);
  EXPECT_THAT(refused(bad), Pair("plan.stages", "plan.stages=-2 is below 0"));
  bad = MakeRequest();
  bad.mutable_plan()->set_split_k(-3);
  EXPECT_THAT(refused(bad), Pair("plan.split_k", "plan.split_k=-3 is below 0"));
  bad = MakeRequest();
  bad.GetReflection()->MutableUnknownFields(&bad)->AddVarint(99, 1);
  EXPECT_EQ(refused(bad).first, "request");
  bad = MakeRequest();
  bad.mutable_plan()->GetReflection()->MutableUnknownFields(bad.mutable_plan())->AddVarint(99, 1);
  EXPECT_EQ(refused(bad).first, "plan");
}

TEST(ProfileCodecTest, DurationsOutOfBoundsAreRefusedAndNeverOverflow) {
  const Status short_one = WithDuration(0, 9'999'999).status();
  EXPECT_EQ(short_one.field(), "duration");
  EXPECT_EQ(short_one.message(),
            "duration=0 s and 9999999 ns is not 10 ms or more and at most 60 s");
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const auto& [seconds, nanos] : {std::pair<int64_t, int32_t>{0, 0},
                                       {0, -1},
                                       {1, -1},
                                       {1, 1'000'000'000},
                                       {60, 1},
                                       {61, 0},
                                       {-1, 0},
                                       {kMax, std::numeric_limits<int32_t>::max()},
                                       {-kMax - 1, std::numeric_limits<int32_t>::min()}}) {
    const Status status = WithDuration(seconds, nanos).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << seconds << " " << nanos;
    EXPECT_EQ(status.field(), "duration") << seconds << " " << nanos;
  }
}

Profile SomeProfile() {
  Profile profile;
  profile.reasons = {"barrier", "long_scoreboard", "selected"};
  return profile;
}

RangeSamples RangeOf(uint64_t first, std::vector<int64_t> by_reason,
                     CodeKind kind = CodeKind::kOther) {
  return {.range = {.first = first, .last = first + 16, .kind = kind},
          .by_reason = std::move(by_reason)};
}

TEST(ProfileCodecTest, FunctionsRangesAndReasonsComeByTheirSamples) {
  Profile profile = SomeProfile();
  profile.median_seconds = 3e-6;
  profile.plan.row = 1;
  profile.samples.dropped = 9;
  profile.samples.functions = {{.kernel = kSumPartsKernel, .ranges = {RangeOf(0, {1, 0, 0})}},
                               {.kernel = 1,
                                .ranges = {RangeOf(0, {0, 2, 3}, CodeKind::kTensorMath),
                                           RangeOf(32, {0, 9, 1}, CodeKind::kWaitFull)}}};
  const v1::ProfileResponse out = ToProto(profile);
  EXPECT_EQ(out.plan().kernel(), kKernelTable[1].name);
  EXPECT_EQ(out.median().nanos(), 3000);
  EXPECT_EQ(out.dropped_samples(), 9);
  ASSERT_EQ(out.functions_size(), 2);
  const v1::FunctionProfile& first = out.functions(0);
  EXPECT_EQ(first.kernel(), kKernelTable[1].name);
  EXPECT_EQ(first.samples(), 15);
  EXPECT_THAT(ReasonsOf(first), ElementsAre(Pair("long_scoreboard", 11), Pair("selected", 4)));
  ASSERT_EQ(first.ranges_size(), 2);
  EXPECT_EQ(first.ranges(0).first_offset(), 32U);
  EXPECT_EQ(first.ranges(0).last_offset(), 48U);
  EXPECT_EQ(first.ranges(0).samples(), 10);
  EXPECT_EQ(first.ranges(0).note(), "wait for a full stage");
  EXPECT_THAT(ReasonsOf(first.ranges(0)),
              ElementsAre(Pair("long_scoreboard", 9), Pair("selected", 1)));
  EXPECT_EQ(first.ranges(1).note(), "tensor math");
  EXPECT_THAT(ReasonsOf(first.ranges(1)),
              ElementsAre(Pair("selected", 3), Pair("long_scoreboard", 2)));
  EXPECT_EQ(out.functions(1).kernel(), "sum_parts");
  EXPECT_EQ(out.functions(1).ranges(0).note(), "");
}

TEST(ProfileCodecTest, WhatHasNoSamplesIsLeftOut) {
  Profile profile = SomeProfile();
  profile.samples.functions = {
      {.kernel = 0, .ranges = {}},
      {.kernel = 1, .ranges = {RangeOf(0, {0, 0, 0})}},
      {.kernel = kOtherKernel, .ranges = {RangeOf(0, {0, 0, 0}), RangeOf(32, {0, 0, 1})}}};
  const v1::ProfileResponse out = ToProto(profile);
  ASSERT_EQ(out.functions_size(), 1);
  EXPECT_EQ(out.functions(0).kernel(), "other");
  ASSERT_EQ(out.functions(0).ranges_size(), 1);
  EXPECT_EQ(out.functions(0).ranges(0).first_offset(), 32U);
  EXPECT_EQ(ToProto(SomeProfile()).functions_size(), 0);
}

TEST(ProfileCodecTest, RangesBeyondTheirLimitAreInTheSumsAlone) {
  Profile profile = SomeProfile();
  FunctionSamples function{.kernel = 0, .ranges = {}};
  for (int i = 1; i <= 200; ++i) {
    function.ranges.push_back(RangeOf(static_cast<uint64_t>(i) * 16, {0, 0, i}));
  }
  profile.samples.functions = {function};
  const v1::ProfileResponse out = ToProto(profile);
  ASSERT_EQ(out.functions(0).ranges_size(), 64);
  EXPECT_EQ(out.functions(0).ranges(0).samples(), 200);
  EXPECT_EQ(out.functions(0).ranges(63).samples(), 137);
  EXPECT_EQ(out.functions(0).samples(), 200 * 201 / 2);
}

TEST(StallsCodecTest, TotalsComeByKernelWithTheMostSamplesFirst) {
  StallTotals totals;
  totals.up = true;
  totals.sampled = milliseconds(2500);
  totals.samples = {{{0, "barrier"}, 2},
                    {{0, "selected"}, 7},
                    {{3, "selected"}, 1},
                    {{kSumPartsKernel, "barrier"}, 4},
                    {{kOtherKernel, "long_scoreboard"}, 5}};
  v1::Statistics out;
  EncodeStalls(totals, &out);
  EXPECT_TRUE(out.pc_sampling_up());
  EXPECT_EQ(out.pc_sampled().seconds(), 2);
  EXPECT_EQ(out.pc_sampled().nanos(), 500'000'000);
  ASSERT_EQ(out.stall_samples_size(), 4);
  EXPECT_EQ(out.stall_samples(0).kernel(), kKernelTable[0].name);
  EXPECT_THAT(ReasonsOf(out.stall_samples(0)),
              ElementsAre(Pair("selected", 7), Pair("barrier", 2)));
  EXPECT_EQ(out.stall_samples(1).kernel(), kKernelTable[3].name);
  EXPECT_EQ(out.stall_samples(2).kernel(), "sum_parts");
  EXPECT_EQ(out.stall_samples(3).kernel(), "other");
}

TEST(StallsCodecTest, NothingSampledIsNothingSaid) {
  v1::Statistics out;
  EncodeStalls({}, &out);
  EXPECT_FALSE(out.pc_sampling_up());
  EXPECT_EQ(out.pc_sampled().seconds() + out.pc_sampled().nanos(), 0);
  EXPECT_THAT(out.stall_samples(), IsEmpty());
}

}  // namespace
}  // namespace gemmd
