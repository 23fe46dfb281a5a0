// gemmctl as a shell sees it, where it needs no server: what it says and how it exits.
#include <array>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace gemmd {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string output;  // what the shell did not send elsewhere, stderr included
};

// `words` are the shell's: they may redirect.
Outcome RunGemmctl(const std::string& words) {
  const std::string command = "{ '" GEMMCTL_BINARY "' " + words + "; } 2>&1";
  Outcome outcome;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 256> part;
  while (fgets(part.data(), part.size(), pipe) != nullptr) outcome.output += part.data();
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

void ExpectRefused(const std::string& words, const std::string& says) {
  const Outcome outcome = RunGemmctl(words);
  EXPECT_EQ(outcome.exit_code, 1) << words;
  EXPECT_NE(outcome.output.find(says), std::string::npos) << words << ": " << outcome.output;
}

TEST(GemmctlTest, OutputThatCannotBeWrittenIsAFailure) {
  EXPECT_EQ(RunGemmctl("--help > /dev/null").exit_code, 0);
  ExpectRefused("--help > /dev/full", "cannot write stdout: No space left on device");
  ExpectRefused("--version >&-", "cannot write stdout");
}

TEST(GemmctlTest, RefusalsRepeatWhatWasTyped) {
  ExpectRefused("frobnicate", "unknown verb \"frobnicate\"");
  ExpectRefused("plan 1 1 99999999999999999999", "K: 99999999999999999999 is not");
  ExpectRefused("--timeout nan info", "--timeout: nan is not");
  ExpectRefused("--connect-timeout nan info", "--connect-timeout: nan is not");
  ExpectRefused("--timeout 1e99 info", "--timeout: 1e99 is not");
  ExpectRefused("check --seed 18446744073709551616", "--seed: 18446744073709551616 is not");
  ExpectRefused("check --seed=-1", "--seed: -1 is not");
  ExpectRefused("matmul a b -o d --stages 3000000000", "--stages: 3000000000 is not");
  ExpectRefused("matmul a b -o d --alpha 1e309", "--alpha: 1e309 is not");
  ExpectRefused("matmul a b -o d --alpha ''", "--alpha:  is not");
  ExpectRefused("matmul a b -o d --beta ''", "--beta:  is not");
}

TEST(GemmctlTest, ErrorsAreJsonWhereAskedFor) {
  const Outcome outcome = RunGemmctl("frobnicate --json 2>/dev/null");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.output.rfind("{\"error\":", 0), 0U) << outcome.output;
}

}  // namespace
}  // namespace gemmd
