#include "client/problem_list.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/core/tables.h"

namespace gemmd {
namespace {

std::string Extents(const std::string& text) {
  const StatusOr<std::vector<int64_t>> extents = ParseExtents("--m", text);
  if (!extents.ok()) return extents.status().message();
  std::string list;
  for (const int64_t extent : *extents) list += (list.empty() ? "" : " ") + std::to_string(extent);
  return list;
}

TEST(ProblemListTest, ExtentsAreListsAndRanges) {
  EXPECT_EQ(Extents("7"), "7");
  EXPECT_EQ(Extents("512,1024, 4096"), "512 1024 4096");
  EXPECT_EQ(Extents("1:128:*2"), "1 2 4 8 16 32 64 128");
  EXPECT_EQ(Extents("1:10:+4"), "1 5 9");
  EXPECT_EQ(Extents("5:5:+1"), "5");
  EXPECT_EQ(Extents("1,16:64:*2,9"), "1 16 32 64 9");
  EXPECT_EQ(Extents("2147483647"), "2147483647");
  EXPECT_EQ(Extents("2147483646:2147483647:*9000000000000"), "2147483646");
}

TEST(ProblemListTest, MalformedExtentsAreRefusedWithOptionAndValue) {
  for (const char* text : {"", "x", "1,", "1.5", "0", "-1", "2147483648", "99999999999999999999"}) {
    EXPECT_NE(Extents(text).find("is not a whole number from 1 to 2147483647"), std::string::npos)
        << text << ": " << Extents(text);
    EXPECT_EQ(Extents(text).rfind("--m=", 0), 0U) << text;
  }
  EXPECT_EQ(Extents("1:2"), "--m=1:2 is not START:END:+STEP or START:END:*FACTOR");
  EXPECT_EQ(Extents("1:2:3"), "--m=1:2:3 is not START:END:+STEP or START:END:*FACTOR");
  EXPECT_EQ(Extents("1:2:+"), "--m=1:2:+ is not START:END:+STEP or START:END:*FACTOR");
  EXPECT_EQ(Extents("1:2:+1:1"), "--m=1:2:+1:1 is not START:END:+STEP or START:END:*FACTOR");
  EXPECT_EQ(Extents("3:2:+1"), "--m=3:2:+1 starts above its end");
  EXPECT_EQ(Extents("1:2:*1"), "--m=1:2:*1 has a factor that is not a whole number from 2 on");
  EXPECT_EQ(Extents("1:2:+0"), "--m=1:2:+0 has a step that is not a whole number from 1 on");
  EXPECT_EQ(Extents("1:2:+x"), "--m=1:2:+x has a step that is not a whole number from 1 on");
}

TEST(ProblemListTest, ARangeWithoutEndIsRefusedBeforeItIsHeld) {
  EXPECT_EQ(Extents("1:2147483647:+1"), "10001 shapes exceed the limit of 10000");
}

TEST(ProblemListTest, AShapeTakesTheTypesOfItsOptions) {
  const ShapeTypes types{.type = DType::kI8, .op_a = Op::kT, .op_b = Op::kN};
  const StatusOr<NamedProblem> shape = ParseShape("64x128x32", types);
  ASSERT_TRUE(shape.ok()) << shape.status().ToString();
  EXPECT_EQ(ProblemText(shape->problem), "i8 TN 64x128x32");
  EXPECT_EQ(shape->problem.type_d, DType::kI32);
  EXPECT_EQ(shape->problem.a.ld, 64);
  EXPECT_TRUE(shape->name.empty());
}

TEST(ProblemListTest, MalformedShapesAreRefusedWithTheirText) {
  for (const char* text : {"", "64", "64x64", "64x64x64x64", "64X64X64"}) {
    const Status status = ParseShape(text, {}).status();
    EXPECT_EQ(status.message(), "--shape=" + std::string(text) + " is not MxNxK");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  }
  for (const char* text : {"64x64x", "64x64x0", "64x64x2147483648", "64x 64x64", "64x64x6.4"}) {
    const Status status = ParseShape(text, {}).status();
    EXPECT_NE(status.message().find("is not a whole number from 1 to 2147483647"),
              std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  }
  const Status long_sum = ParseShape("64x64x131072", {.type = DType::kI8}).status();
  EXPECT_NE(long_sum.message().find("131071"), std::string::npos) << long_sum.message();
}

TEST(ProblemListTest, RangesCrossWithKFastest) {
  const auto problems = CrossExtents({1, 2}, {3}, {4, 5}, {.type = DType::kF32});
  ASSERT_TRUE(problems.ok());
  std::string list;
  for (const NamedProblem& p : *problems) list += ProblemText(p.problem) + "; ";
  EXPECT_EQ(list, "f32 NN 1x3x4; f32 NN 1x3x5; f32 NN 2x3x4; f32 NN 2x3x5; ");
}

TEST(ProblemListTest, TooManyShapesAreRefusedBeforeTheyAreMade) {
  const std::vector<int64_t> most(10000, 1), few(100, 1);
  EXPECT_TRUE(CrossExtents(few, few, {1}, {}).ok());
  EXPECT_EQ(CrossExtents(few, few, {1, 2}, {}).status().message(),
            "20000 shapes exceed the limit of 10000");
  const Status status = CrossExtents(most, most, most, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "too many shapes exceed the limit of 10000");
}

TEST(TextTest, TimesLeftAreWordedByTheirSize) {
  EXPECT_EQ(LongTime(0), "0 s");
  EXPECT_EQ(LongTime(-5), "0 s");
  EXPECT_EQ(LongTime(std::numeric_limits<double>::quiet_NaN()), "0 s");
  EXPECT_EQ(LongTime(41.2), "42 s");
  EXPECT_EQ(LongTime(200), "3 min 20 s");
  EXPECT_EQ(LongTime(7500), "2 h 5 min");
  EXPECT_EQ(LongTime(1e300), "277777 h 46 min");
}

TEST(TextTest, TablesAlignTheirColumnsAndEndWithoutBlanks) {
  EXPECT_EQ(TableText({{"A", "LONG", ""}, {"long", "x", ""}, {"b", "y", "mark"}}),
            "A     LONG\nlong  x\nb     y     mark\n");
}

}  // namespace
}  // namespace gemmd
