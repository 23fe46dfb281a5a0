// The laboratory as gemmctl starts it, and where its kernels are: nowhere else.
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gemmctl_run.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

std::string BytesOf(const char* path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// A program names its kernels to the driver, stripped or not.
TEST(LabProgramTest, NoKernelOfTheLaboratoryIsInTheServer) {
  const std::string kernels[] = {"LabKernel", "FillArray", "TracedWaits", "TracedProbe"},
                    product = "GemmCpAsyncMma";
  const std::string lab = BytesOf(GEMMD_LAB_BINARY), server = BytesOf(GEMMD_BINARY);
  ASSERT_NE(server.find(product), std::string::npos) << "this would find nothing";
  for (const std::string& kernel : kernels) {
    EXPECT_NE(lab.find(kernel), std::string::npos) << kernel;
    EXPECT_EQ(server.find(kernel), std::string::npos) << kernel;
  }
}

TEST(LabProgramTest, TheModelIsTheWorkedExample) {
  Gemmctl lab({"lab", "model", "--no-measure", "--max-stages", "4"});
  EXPECT_EQ(lab.ExitCode(), 0) << lab.output();
  EXPECT_THAT(lab.output(), HasSubstr("4 stages cover L"));
  EXPECT_THAT(lab.output(), HasSubstr("\n1       500        720 "));
  EXPECT_THAT(lab.output(), HasSubstr("\n2       280        360 "));
  EXPECT_THAT(lab.output(), HasSubstr("\n3       60         240 "));
  EXPECT_THAT(lab.output(), HasSubstr("\n4       0          220 "));
}

TEST(LabProgramTest, WordsThatAreNoneOfItsEndIt) {
  for (const auto& [words, said] :
       std::initializer_list<std::pair<std::vector<std::string>, const char*>>{
           {{"lab"}, "subcommand is required"},
           {{"lab", "hazard", "--hazard", "none"}, "none not in {overwrite,"},
           {{"lab", "--mechanism", "ldg", "ladder"}, "ldg not in {cp_async,tma}"},
           {{"lab", "model", "--max-stages", "9"}, "9 not in range"},
           {{"lab", "model", "--load", "nan"}, "nan not in range 0 to 1000000"},
           {{"lab", "residency", "--compute", "0"}, "0 not in range 1 to 1000000"},
           {{"lab", "timeline", "--svg", "/no/such/folder/a.svg"}, "/no/such/folder"},
           {{"lab", "timeline", "--block", "0,1024"}, "1024 not in range"},
           {{"lab", "timeline", "--kernel", "tma_wgmma_128x128x64", "--steps", "4"},
            "--steps excludes --kernel"},
           {{"lab", "--mechanism", "tma", "timeline", "--kernel", "cp_async_128x128x64"},
            "--mechanism excludes --kernel"},
           {{"lab", "timeline", "--kernel", "gemv"}, "gemv not in {cp_async_128x128x64,"},
           {{"lab", "timeline", "--svg", "a", "--trace", "./a"}, "svg=a is the file of trace=./a"},
           {{"lab", "timeline", "--svg", ""}, "names no file"},
           {{"lab", "model", "--load", "-0"}, "-0 not in range"},
           {{"lab", "hazard", "--seed", "-1"}, "-1 not in range 0 to 4294967295"},
           {{"lab", "timeline", "-m", "64"}, "-m requires --kernel"},
           {{"lab", "ladder", "--work", "1", "--compute", "9"}, "--work excludes --compute"}}) {
    Gemmctl lab(words);
    EXPECT_EQ(lab.ExitCode(), 1) << lab.output();
    EXPECT_THAT(lab.output(), HasSubstr(said));
  }
}

}  // namespace
}  // namespace gemmd
