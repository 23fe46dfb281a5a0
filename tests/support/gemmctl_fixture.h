// gemmctl beside a server that answers what the test says.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_tuner.h"
#include "tests/support/gemmctl_run.h"

namespace gemmd {

class GemmctlFixture : public ::testing::Test {
 protected:
  explicit GemmctlFixture(const std::string& socket_name) : server_(socket_name) {}

  std::vector<std::string> Args(const std::vector<std::string>& words) const {
    std::vector<std::string> args = {"--server", server_.target()};
    args.insert(args.end(), words.begin(), words.end());
    return args;
  }
  // As bad input, before anything is asked of the server.
  void ExpectRefused(const std::vector<std::string>& words, const std::string& says) {
    Gemmctl run(Args(words));
    EXPECT_EQ(run.ExitCode(), 1) << run.output();
    EXPECT_NE(run.output().find(says), std::string::npos) << says << ": " << run.output();
    EXPECT_EQ(fake_.calls(), 0) << says;
  }

  FakeTunerServer server_;
  FakeTuner& fake_ = server_.tuner();
};

}  // namespace gemmd
