#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/process.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PortFileTest : public ::testing::Test {
 protected:
  PortFileTest() {
    std::string folder = ::testing::TempDir() + "port_file.XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) ADD_FAILURE() << folder;
    folder_ = folder;
    path_ = folder_ + "/ports";
  }
  ~PortFileTest() override {
    unlink(path_.c_str());
    unlink((folder_ + "/other").c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "something is left in " << folder_;
  }

  static std::string Text(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static bool Exists(const std::string& path) {
    struct stat there {};
    return lstat(path.c_str(), &there) == 0;
  }
  void ExpectRefused(const std::string& path) {
    const StatusOr<PortFile> file = PortFile::Claim(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(file.status().field(), "port-file");
    EXPECT_THAT(file.status().message(), AllOf(HasSubstr(path), HasSubstr("regular file")));
    EXPECT_TRUE(Exists(path));
  }

  std::string folder_, path_;
};

TEST_F(PortFileTest, HoldsItsTextUntilItIsGivenUp) {
  {
    StatusOr<PortFile> file = PortFile::Claim(path_);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_FALSE(Exists(path_));
    ASSERT_TRUE(file->Write("grpc x\n").ok());
    EXPECT_EQ(Text(path_), "grpc x\n");
  }
  EXPECT_FALSE(Exists(path_));
}

TEST_F(PortFileTest, WhatAnEarlierServerLeftIsGoneOnceClaimed) {
  std::ofstream(path_) << "grpc old\n";
  const StatusOr<PortFile> file = PortFile::Claim(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(Exists(path_));
}

TEST_F(PortFileTest, LinksDevicesPipesAndFoldersAreRefusedAndKept) {
  const std::string other = folder_ + "/other";
  std::ofstream(other) << "mine";
  ASSERT_EQ(symlink(other.c_str(), path_.c_str()), 0);
  ExpectRefused(path_);
  EXPECT_EQ(Text(other), "mine");
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectRefused(path_);
  ExpectRefused("/dev/null");
  ExpectRefused(folder_);
}

TEST_F(PortFileTest, AnothersFileInItsPlaceIsKept) {
  StatusOr<PortFile> file = PortFile::Claim(path_);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Write("first\n").ok());
  StatusOr<PortFile> next = PortFile::Claim(path_);
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(next->Write("second\n").ok());
  file->Remove();
  EXPECT_EQ(Text(path_), "second\n");
}

TEST_F(PortFileTest, FolderThatIsNotThereIsNamed) {
  StatusOr<PortFile> file = PortFile::Claim(folder_ + "/none/ports");
  ASSERT_TRUE(file.ok());
  const Status status = file->Write("x");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("/none/ports"));
}

TEST_F(PortFileTest, EmptyPathIsNoFile) {
  StatusOr<PortFile> file = PortFile::Claim("");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->Write("x").ok());
}

}  // namespace
}  // namespace gemmd
