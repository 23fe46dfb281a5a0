#include "proto/convert.h"

#include <google/protobuf/generated_enum_reflection.h>
#include <gtest/gtest.h>

namespace gemmd {
namespace {

// Every value but `none`, which stands for no value of its own, comes back as itself.
template <typename Wire>
void ExpectPairs(int none) {
  const google::protobuf::EnumDescriptor* const all = google::protobuf::GetEnumDescriptor<Wire>();
  for (int i = 0; i < all->value_count(); ++i) {
    if (all->value(i)->number() == none) continue;
    const auto value = static_cast<Wire>(all->value(i)->number());
    const auto core = FromProto(value);
    ASSERT_TRUE(core) << all->value(i)->name();
    EXPECT_EQ(ToProto(*core), value) << all->value(i)->name();
  }
  EXPECT_FALSE(FromProto(static_cast<Wire>(99))) << all->name();
}

TEST(ConvertTest, EveryValueOfAnEnumIsPairedAndOthersAreNot) {
  ExpectPairs<v1::DataType>(v1::DATA_TYPE_UNSPECIFIED);
  ExpectPairs<v1::ComputeMode>(v1::COMPUTE_MODE_UNSPECIFIED);
  ExpectPairs<v1::Activation>(-1);
  ExpectPairs<v1::Transpose>(-1);
  ExpectPairs<v1::BiasAxis>(-1);
}

TEST(ConvertTest, WhatIsUnspecifiedHasNoTypeAndTheIeeeMode) {
  EXPECT_FALSE(FromProto(v1::DATA_TYPE_UNSPECIFIED));
  EXPECT_EQ(FromProto(v1::COMPUTE_MODE_UNSPECIFIED), ComputeMode::kIeee);
  EXPECT_EQ(ToProto(BiasAxis::kNone), v1::BiasAxis()) << "the axis that a message without one has";
}

TEST(ConvertTest, ACalibrationComesBackWithAndWithoutTma) {
  EXPECT_EQ(FromProto(ToProto(kH200Calibration)), kH200Calibration);
  Calibration without = kH200Calibration;
  without.tma.reset();
  EXPECT_EQ(FromProto(ToProto(without)), without);
}

}  // namespace
}  // namespace gemmd
