#include "kernels/core/text.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/shape_list.h"

namespace gemmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(TextTest, OnlyOneIsSingular) {
  EXPECT_EQ(Count(0, "problem"), "0 problems");
  EXPECT_EQ(Count(1, "problem"), "1 problem");
  EXPECT_EQ(Count(2, "usable device"), "2 usable devices");
}

TEST(TextTest, AShortNumberHasSixDigitsAtMost) {
  EXPECT_EQ(Short(0.5), "0.5");
  EXPECT_EQ(Short(1.0 / 3), "0.333333");
  EXPECT_EQ(Short(-std::numeric_limits<double>::max()), "-1.79769e+308");
}

TEST(TextTest, ANumberIsTheWholeText) {
  EXPECT_EQ(ParseNumber<int>("-12"), -12);
  EXPECT_EQ(ParseNumber<double>("1.5"), 1.5);
  EXPECT_EQ(ParseNumber<uint8_t>("255"), 255);
  EXPECT_EQ(ParseNumber<uint8_t>("256"), std::nullopt);
  for (const char* text : {"", " 1", "1 ", "+1", "1.5", "0x10", "99999999999999999999"}) {
    EXPECT_EQ(ParseNumber<int64_t>(text), std::nullopt) << text;
  }
}

TEST(TextTest, TimesTakeUnits) {
  EXPECT_EQ(ParseSeconds("0"), 0);
  EXPECT_EQ(ParseSeconds("30"), 30);
  EXPECT_EQ(ParseSeconds("30s"), 30);
  EXPECT_EQ(ParseSeconds("500ms"), 0.5);
  EXPECT_EQ(ParseSeconds("1.5m"), 90);
  EXPECT_EQ(ParseSeconds("2h"), 7200);
  for (const char* text : {"", "s", "-1s", "1d", "1 s", "nan", "inf", "1e3", "5mm"}) {
    EXPECT_EQ(ParseSeconds(text), std::nullopt) << text;
  }
}

TEST(TextTest, EverySeparatorSplits) {
  EXPECT_THAT(Split("a,b", ','), ElementsAre("a", "b"));
  EXPECT_THAT(Split(",a,", ','), ElementsAre("", "a", ""));
  EXPECT_THAT(Split("", ','), ElementsAre(""));
  EXPECT_EQ(Trim(" \ta b\r"), "a b");
  EXPECT_EQ(Trim(" \t"), "");
}

TEST(ShapeListTest, LinesAreReadAndCommentsLeftOut) {
  const auto problems = ParseShapeList("s.csv",
                                       "# name,dtype,layout,M,N,K\n"
                                       "\r\n"
                                       "a,bf16,NT,1,4096,512\r\n"
                                       "b, tf32 ,TN,2,3,4\n"
                                       "  # more\n"
                                       ",fp8,TT,16,16,16\n"
                                       "d,i8,NN,2147483647,1,1,64");
  ASSERT_TRUE(problems.ok()) << problems.status().ToString();
  ASSERT_EQ(problems->size(), 4U);
  EXPECT_EQ((*problems)[0].name, "a");
  EXPECT_EQ(ToString((*problems)[0].problem), "bf16 NT 1x4096x512 batch 1");
  EXPECT_EQ(ToString((*problems)[1].problem), "f32 TN 2x3x4 batch 1");
  EXPECT_EQ((*problems)[1].problem.mode, ComputeMode::kTf32);
  EXPECT_EQ((*problems)[1].dtype, "tf32");
  EXPECT_EQ((*problems)[2].name, "");
  EXPECT_EQ(ToString((*problems)[2].problem), "e4m3 TT 16x16x16 batch 1");
  EXPECT_EQ((*problems)[2].problem.type_d, DType::kBF16);
  EXPECT_EQ(ToString((*problems)[3].problem), "i8 NN 2147483647x1x1 batch 64");
}

TEST(ShapeListTest, MalformedLinesAreRefusedByNumberFieldAndValue) {
  const struct {
    const char* line;
    const char* field;
    const char* message;
  } cases[] = {
      {"a,bf16,NN,1,2", "row", "5 cells, not the 6 or 7 of name,dtype,layout,M,N,K[,BATCH]"},
      {"a,bf16,NN,1,2,3,4,", "row", "8 cells"},
      {"a", "row", "1 cells"},
      {"a,bf17,NN,1,2,3", "dtype", "dtype=bf17 is not one of f16,"},
      {"a,bf16,NX,1,2,3", "layout", "layout=NX is not one of NN, NT, TN, TT"},
      {"a,bf16,N,1,2,3", "layout", "layout=N is not one of NN, NT, TN, TT"},
      {"a,bf16,NN,0,2,3", "M", "M=0 is not a whole number from 1 to 2147483647"},
      {"a,bf16,NN,1,-2,3", "N", "N=-2 is not"},
      {"a,bf16,NN,1,2,3x", "K", "K=3x is not"},
      {"a,bf16,NN,1,2,", "K", "K= is not"},
      {"a,bf16,NN,1,2,2147483648", "K", "K=2147483648 is not"},
      {"a,bf16,NN,1,2,99999999999999999999", "K", "K=99999999999999999999 is not"},
      {"a,bf16,NN,1,2,3,", "BATCH", "BATCH= is not"},
      {"a,bf16,NN,1,2,3,0", "BATCH", "BATCH=0 is not"},
      {"a,i8,NN,1,2,131072", "problem.k", "131071"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.line);
    const Status status =
        ParseShapeList("s.csv", std::string("ok,bf16,NN,1,1,1\n") + c.line + "\n").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), c.field);
    EXPECT_THAT(status.message(), StartsWith("s.csv:2: "));
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
}

TEST(ShapeListTest, ATextWithoutShapesIsRefused) {
  EXPECT_EQ(ParseShapeList("s.csv", "").status().message(), "s.csv holds no shapes");
  EXPECT_EQ(ParseShapeList("s.csv", "# none\n").status().message(), "s.csv holds no shapes");
}

}  // namespace
}  // namespace gemmd
