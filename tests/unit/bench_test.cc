#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "kernels/core/numeric.h"
#include "tests/bench/line_writer.h"
#include "tests/bench/result_check.h"
#include "tests/bench/shape_list.h"
#include "tests/support/matrices.h"

namespace gemmd::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LineWriterTest, AppendsToWhatTheFileHolds) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) /
                                     ("gemmd_bench_" + std::to_string(getpid()) + ".jsonl");
  for (const int value : {1, 2}) {
    const StatusOr<LineWriter> writer = LineWriter::Create(path.string());
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    ASSERT_TRUE(writer->Write(Json::Object().Set("v", value)).ok());
  }
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  EXPECT_EQ(text.str(), "{\"v\": 1}\n{\"v\": 2}\n");
}

TEST(LineWriterTest, NamesTheFileThatCannotBeOpened) {
  const StatusOr<LineWriter> writer = LineWriter::Create("/nowhere/at/all.jsonl");
  ASSERT_FALSE(writer.ok());
  EXPECT_THAT(writer.status().message(), HasSubstr("/nowhere/at/all.jsonl"));
}

TEST(ShapeListTest, ANameIsTheSecondTimeRefusedWithinItsType) {
  EXPECT_TRUE(ParseShapes("s", "a,bf16,NN,1,1,1\na,fp16,NN,1,1,1\n").ok());
  const Status twice = ParseShapes("s", "a,bf16,NN,1,1,1\na,bf16,NT,1,1,1\n").status();
  EXPECT_EQ(twice.field(), "name");
  EXPECT_EQ(twice.message(), "s: name=a is there twice with dtype=bf16");
  EXPECT_EQ(ParseShapes("s", ",bf16,NN,1,1,1\n").status().message(), "s: a shape's name is empty");
  EXPECT_FALSE(ParseShapes("s", "# only a comment\n").ok());
}

TEST(ShapeListTest, TheFamilyIsTheNameUpToItsFirstDash) {
  EXPECT_EQ(FamilyOf({"odd-k-4100", {}}), "odd");
  EXPECT_EQ(FamilyOf({"square", {}}), "square");
}

TEST(ShapeListTest, PicksByNameOrByNameAndTypeInFileOrder) {
  const auto shapes = ParseShapes("s", "a,bf16,NN,1,1,1\nb,bf16,NN,1,1,1\na,fp16,NN,1,1,1\n");
  ASSERT_TRUE(shapes.ok());
  const auto picked = [&](const std::vector<std::string>& rows) {
    std::vector<std::string> names;
    const auto result = SelectShapes(*shapes, rows);
    if (!result.ok()) return std::vector<std::string>{result.status().message()};
    for (const Shape& shape : *result) names.push_back(shape.name + ":" + shape.dtype);
    return names;
  };
  EXPECT_THAT(picked({}), ElementsAre("a:bf16", "b:bf16", "a:fp16"));
  EXPECT_THAT(picked({"b", "a"}), ElementsAre("a:bf16", "b:bf16", "a:fp16"));
  EXPECT_THAT(picked({"a:fp16"}), ElementsAre("a:fp16"));
  EXPECT_THAT(picked({"a", "c"}), ElementsAre(HasSubstr("rows=c")));
  EXPECT_THAT(picked({"b:fp16"}), ElementsAre(HasSubstr("rows=b:fp16")));
}

TEST(ShapeListTest, KernelsTakeFloatsOfTwoBytesAndIeeeSingles) {
  const auto taken = [](const std::string& dtype) {
    return HasKernel(ParseShapes("s", "x," + dtype + ",NN,1,1,1")->front().problem);
  };
  for (const char* dtype : {"bf16", "fp16", "fp32"}) EXPECT_TRUE(taken(dtype)) << dtype;
  for (const char* dtype : {"tf32", "fp64", "fp8", "int8"}) EXPECT_FALSE(taken(dtype)) << dtype;
}

GemmProblem LayoutProblem(int64_t m, int64_t n, int64_t k, const std::string& ops) {
  return *PackedProblem(m, n, k,
                        {.type = DType::kBF16,
                         .op_a = ops[0] == 'T' ? Op::kT : Op::kN,
                         .op_b = ops[1] == 'T' ? Op::kT : Op::kN});
}

// D of `data`, right as ReferenceGemm says and rounded.
std::vector<std::byte> RightResult(const GemmProblem& problem, GemmData& data) {
  const std::vector<double> reference = ReferenceGemm(problem, data.operands());
  std::vector<std::byte> d(reference.size() * static_cast<size_t>(SizeOf(problem.type_d)));
  for (size_t i = 0; i < reference.size(); ++i) {
    StoreElement(d.data(), problem.type_d, static_cast<int64_t>(i), reference[i]);
  }
  return d;
}

TEST(ResultCheckTest, SmallResultsAreCheckedWholeAndLargeOnesAtTheCornersAtLeast) {
  const Sample small = PickSample(LayoutProblem(300, 100, 7, "NN"), 1);
  EXPECT_EQ(small.rows.size(), 300U);
  EXPECT_EQ(small.cols.size(), 100U);
  const Sample large = PickSample(LayoutProblem(5000, 5001, 5002, "NN"), 1);
  EXPECT_EQ(large.rows.size(), 256U);
  EXPECT_EQ(large.cols.size(), 64U);
  EXPECT_EQ(large.rows.front(), 0);
  EXPECT_EQ(large.rows.back(), 4999);
  EXPECT_EQ(large.cols.front(), 0);
  EXPECT_EQ(large.cols.back(), 5000);
  EXPECT_EQ(PickSample(LayoutProblem(16, 70000, 70000, "NN"), 1).rows.size(), 16U);
  EXPECT_EQ(PickSample(LayoutProblem(5000, 5001, 5002, "NN"), 1).rows, large.rows);
  EXPECT_NE(PickSample(LayoutProblem(5000, 5001, 5002, "NN"), 2).rows, large.rows);
}

TEST(ResultCheckTest, AnySampledElementThatIsWrongIsFoundInEveryLayout) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  const Sample sample = {{0, 3, 4, 36}, {0, 1, 20, 28}};
  for (const char* layout : {"NN", "NT", "TN", "TT"}) {
    SCOPED_TRACE(layout);
    const GemmProblem problem = LayoutProblem(37, 29, 41, layout);
    GemmData data(problem, seed);
    const HostOperands operands = data.operands();
    const SampledReference reference(problem, sample, operands.a, operands.b);
    const std::vector<std::byte> whole = RightResult(problem, data);
    std::vector<std::byte> rows;
    const size_t row_bytes = 29 * 2;
    for (const int64_t row : sample.rows) {
      const auto* first = whole.data() + static_cast<size_t>(row) * row_bytes;
      rows.insert(rows.end(), first, first + row_bytes);
    }
    const Mismatch right = reference.Compare(rows.data());
    EXPECT_TRUE(right.ok) << right.ToString();
    EXPECT_EQ(right.elements, 16);
    for (int64_t i = 0; i < 4; ++i) {
      for (const int64_t col : sample.cols) {
        std::vector<std::byte> wrong = rows;
        const double value = LoadElement(wrong.data(), problem.type_d, i * 29 + col);
        StoreElement(wrong.data(), problem.type_d, i * 29 + col, value + 1);
        const Mismatch mismatch = reference.Compare(wrong.data());
        EXPECT_FALSE(mismatch.ok);
        EXPECT_EQ(mismatch.wrong_elements, 1);
        EXPECT_EQ(mismatch.row, sample.rows[static_cast<size_t>(i)]);
        EXPECT_EQ(mismatch.col, col);
        EXPECT_EQ(mismatch.first_wrong, mismatch.row * 29 + col);
      }
    }
    std::vector<std::byte> poisoned(rows.size(), std::byte{0xff});
    EXPECT_EQ(reference.Compare(poisoned.data()).wrong_elements, 16);
  }
}

}  // namespace
}  // namespace gemmd::bench
