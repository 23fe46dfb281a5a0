#include "kernels/core/files.h"

#include <filesystem>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gemmd {
namespace {

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  size_t Count() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++count;
    return count;
  }

  const std::string folder_ = ::testing::TempDir() + "files_test." + std::to_string(getpid());
};

TEST_F(FilesTest, WhatIsWrittenIsRead) {
  ASSERT_TRUE(WriteText(Path("a"), "old").ok());
  ASSERT_TRUE(WriteText(Path("a"), "new").ok());
  const StatusOr<std::string> text = ReadText(Path("a"), 3);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(*text, "new");
  EXPECT_EQ(Count(), 1U);
}

TEST_F(FilesTest, WhatIsNotCommittedLeavesTheOldFileAndNothingElse) {
  ASSERT_TRUE(WriteText(Path("a"), "old").ok());
  {
    StatusOr<ReplacedFile> file = ReplacedFile::Create(Path("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write("new", 3).ok());
  }
  ASSERT_TRUE(CheckWritable(Path("a")).ok());
  EXPECT_EQ(*ReadText(Path("a"), 100), "old");
  EXPECT_EQ(Count(), 1U);
  ASSERT_TRUE(CheckWritable(Path("b")).ok());
  EXPECT_EQ(Count(), 1U);
}

TEST_F(FilesTest, ALinkStaysALinkWhereverItLeads) {
  std::filesystem::create_symlink("b", Path("link"));
  std::filesystem::create_symlink("link", Path("link2"));
  ASSERT_TRUE(WriteText(Path("link2"), "new").ok()) << "makes what a dangling link leads to";
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link2")));
  EXPECT_FALSE(std::filesystem::is_symlink(Path("b")));
  EXPECT_EQ(*ReadText(Path("b"), 100), "new");
  ASSERT_TRUE(WriteText(Path("link"), "newer").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_EQ(*ReadText(Path("b"), 100), "newer");
  std::filesystem::create_symlink("circle", Path("circle"));
  EXPECT_NE(CheckWritable(Path("circle")).message().find("symbolic links"), std::string::npos);
}

TEST_F(FilesTest, ANewFileHasTheModeThatTheProcessGives) {
  const mode_t before = umask(027);
  ASSERT_TRUE(WriteText(Path("a"), "x").ok());
  umask(before);
  EXPECT_EQ(std::filesystem::status(Path("a")).permissions(), std::filesystem::perms{0640});
}

TEST_F(FilesTest, OneFileUnderTwoNamesIsTheSame) {
  EXPECT_TRUE(SameFile(Path("a"), folder_ + "/./a")) << "before it is there";
  EXPECT_FALSE(SameFile(Path("a"), Path("b")));
  ASSERT_TRUE(WriteText(Path("a"), "x").ok());
  EXPECT_TRUE(SameFile(Path("a"), Path("../") + folder_.substr(folder_.rfind('/') + 1) + "/a"));
  EXPECT_FALSE(SameFile(Path("a"), Path("b")));
  std::filesystem::create_hard_link(Path("a"), Path("hard"));
  std::filesystem::create_symlink("a", Path("soft"));
  EXPECT_TRUE(SameFile(Path("a"), Path("hard")));
  EXPECT_TRUE(SameFile(Path("hard"), Path("soft")));
  std::filesystem::create_symlink("b", Path("dangling"));
  EXPECT_TRUE(SameFile(Path("dangling"), Path("b")));
}

TEST_F(FilesTest, PathsThatCannotBeWrittenAreNamed) {
  const Status missing = CheckWritable(Path("no/where"));
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "cannot write " + Path("no/where") + ": No such file or directory");
  EXPECT_EQ(CheckWritable(folder_).message(), folder_ + " exists and is not a regular file");
}

TEST_F(FilesTest, FilesThatCannotBeReadAreNamed) {
  EXPECT_EQ(ReadText(Path("none"), 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadText(folder_, 1).status().message(), "cannot read " + folder_ + ": Is a directory");
  EXPECT_EQ(ReadText("/dev/zero", 1000).status().message(),
            "/dev/zero is longer than the limit of 1000 bytes");
}

TEST_F(FilesTest, AnOpenFileIsReadToItsEnd) {
  ASSERT_TRUE(WriteText(Path("a"), "text").ok());
  const File file(open(Path("a").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(*ReadText(file, "name", 100), "text");
  EXPECT_EQ(ReadText(File(-1), "name", 100).status().message(),
            "cannot read name: Bad file descriptor");
}

}  // namespace
}  // namespace gemmd
