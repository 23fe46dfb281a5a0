#include "kernels/core/json.h"

#include <limits>

#include <gtest/gtest.h>

namespace gemmd {
namespace {

TEST(JsonTest, ObjectsAndArraysNestInTheOrderSet) {
  Json list = Json::Array();
  list.Add(1).Add("two").Add(Json::Object()).Add(Json::Array()).Add(true).Add(Json::Null());
  const Json object = Json::Object().Set("z", list).Set("a", -3).Set("u", ~uint64_t{0});
  EXPECT_EQ(object.text(),
            R"({"z": [1, "two", {}, [], true, null], "a": -3, "u": 18446744073709551615})");
}

TEST(JsonTest, StringsAreEscaped) {
  EXPECT_EQ(Json("a\"b\\c\n\x01\x7f").text(), "\"a\\\"b\\\\c\\u000a\\u0001\x7f\"");
  EXPECT_EQ(Json(std::string_view("\0x", 2)).text(), "\"\\u0000x\"");
  EXPECT_EQ(Json::Object().Set("k\"", 1).text(), R"({"k\"": 1})");
}

TEST(JsonTest, Utf8PassesAndAnythingElseIsReplaced) {
  EXPECT_EQ(Json("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80").text(),
            "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
  EXPECT_EQ(Json("\xff").text(), R"("\ufffd")");
  EXPECT_EQ(Json("\xc3").text(), R"("\ufffd")");                                // cut short
  EXPECT_EQ(Json("\xc0\xaf").text(), R"("\ufffd\ufffd")");                      // overlong
  EXPECT_EQ(Json("\xe0\x80\xaf").text(), R"("\ufffd\ufffd\ufffd")");            // overlong
  EXPECT_EQ(Json("\xed\xa0\x80").text(), R"("\ufffd\ufffd\ufffd")");            // surrogate
  EXPECT_EQ(Json("\xf4\x90\x80\x80").text(), R"("\ufffd\ufffd\ufffd\ufffd")");  // past U+10FFFF
  EXPECT_EQ(Json("\xc3\"").text(), R"("\ufffd\"")");  // a quote is not swallowed
}

TEST(JsonTest, NumbersReadBackTheSameAndNonFiniteOnesAreNull) {
  EXPECT_EQ(Json(0.1).text(), "0.1");
  EXPECT_EQ(Json(1e300).text(), "1e+300");
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).text(), "null");
  EXPECT_EQ(Json(-std::numeric_limits<double>::infinity()).text(), "null");
}

TEST(JsonTest, RoundedNumbersHaveTheirDigitsBehindThePoint) {
  EXPECT_EQ(Json::Rounded(1.23456, 3).text(), "1.235");
  EXPECT_EQ(Json::Rounded(-2, 1).text(), "-2.0");
  EXPECT_EQ(Json::Rounded(1e20, 0).text(), "100000000000000000000");
  EXPECT_EQ(Json::Rounded(std::numeric_limits<double>::quiet_NaN(), 2).text(), "null");
  EXPECT_EQ(Json::Rounded(std::numeric_limits<double>::infinity(), 2).text(), "null");
}

}  // namespace
}  // namespace gemmd
