// A tuning file in a folder of its own.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tuning/tuning_file.h"
#include "tests/support/problems.h"

namespace gemmd {

inline constexpr const char* kBuild = "0.1.0 (abc)";

class TuningFileTest : public ::testing::Test {
 protected:
  TuningFileTest() {
    std::string folder = ::testing::TempDir() + "tuning_file_test.XXXXXX";
    folder_ = mkdtemp(folder.data());
    path_ = folder_ + "/tuning.json";
  }
  ~TuningFileTest() override { std::filesystem::remove_all(folder_); }

  TuningFile File() const { return {path_, kBuild}; }
  // A file of one problem on an H200.
  void SaveOne() {
    TunedPlanner planner(H200Traits());
    ASSERT_TRUE(planner.Learn(
        {Problem(512, 512, 512), {{{.row = RowByName("cp_async_64x64x64"), .stages = 2}, 1e-5}}}));
    const Status status = File().Save({&planner});
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string Read() const { return Read(path_); }
  // A new file: some file systems write a file that is emptied to the disk at once.
  void Write(const std::string& text) const {
    std::filesystem::remove(path_);
    std::ofstream(path_) << text;
  }
  static std::string Replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  }
  void Replace(const std::string& from, const std::string& to) const {
    Write(Replaced(Read(), from, to));
  }
  // The error of loading it, after which the planner must know nothing.
  Status LoadError(const DeviceTraits& traits = H200Traits(),
                   const std::string& build = kBuild) const {
    TunedPlanner planner(traits);
    Status status = TuningFile(path_, build).Load({&planner}).status();
    EXPECT_EQ(planner.entries(), 0U);
    EXPECT_THAT(status.message(), ::testing::HasSubstr(path_));
    EXPECT_THAT(status.message(), ::testing::Not(::testing::HasSubstr("\n")))
        << "a line of the log";
    return status;
  }

  std::string folder_, path_;
};

}  // namespace gemmd
