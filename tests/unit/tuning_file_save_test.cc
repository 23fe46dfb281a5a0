// Saving a tuning file: at once, and without losing what somebody else has put there.
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/tuning_file_fixture.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(TuningFileTest, AFailedSaveNamesThePathAndLeavesWhatWasThere) {
  const TunedPlanner planner(H200Traits());
  const Status nowhere = TuningFile(folder_ + "/no/such/file", kBuild).Save({&planner});
  EXPECT_EQ(nowhere.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(nowhere.message(),
              AllOf(HasSubstr(folder_ + "/no/such/file"), HasSubstr("No such file or directory")));
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_THAT(File().Save({&planner}).message(), HasSubstr("is not a regular file"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1)
      << "nothing unfinished is left";
}

TEST_F(TuningFileTest, ASaveReplacesTheFileWithAnother) {
  SaveOne();
  std::filesystem::create_hard_link(path_, path_ + ".old");
  const TunedPlanner nothing(H200Traits());
  ASSERT_TRUE(File().Save({&nothing}).ok());
  struct stat now {
  }, old{};
  ASSERT_EQ(stat(path_.c_str(), &now), 0);
  ASSERT_EQ(stat((path_ + ".old").c_str(), &old), 0);
  EXPECT_NE(now.st_ino, old.st_ino) << "whoever reads the old one still has all of it";
  EXPECT_GT(old.st_size, now.st_size);
  TunedPlanner planner(H200Traits());
  const StatusOr<LoadedTuning> loaded = File().Load({&planner});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->problems, 0);
}

TEST_F(TuningFileTest, AFileThatWasRefusedIsKeptBesideTheNewOne) {
  SaveOne();
  const std::string theirs = Read();
  TunedPlanner cpu(CpuTraits());
  TuningFile file(path_, kBuild);
  ASSERT_FALSE(file.Load({&cpu}).ok());
  ASSERT_TRUE(file.Save({&cpu}).ok());
  ASSERT_TRUE(file.Save({&cpu}).ok());
  TunedPlanner h200(H200Traits());
  EXPECT_TRUE(TuningFile(path_ + ".old", kBuild).Load({&h200}).ok());
  EXPECT_TRUE(file.Load({&cpu}).ok());
  EXPECT_NE(Read(), theirs);
}

TEST_F(TuningFileTest, WhatCouldNotBeReadInFullIsKept) {
  const auto expect_kept = [this](const std::string& theirs, bool readable) {
    Write(theirs);
    TunedPlanner planner(H200Traits());
    TuningFile file(path_, kBuild);
    EXPECT_EQ(file.Load({&planner}).ok(), readable) << theirs;
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(file.Save({&planner}).ok());
    EXPECT_EQ(Read(path_ + ".old"), theirs);
    EXPECT_NE(Read(), theirs);
    EXPECT_TRUE(file.Load({&planner}).ok());
    EXPECT_FALSE(std::filesystem::exists(path_ + ".old.1")) << "its own files are not kept";
    std::filesystem::remove(path_ + ".old");
  };
  SaveOne();
  const std::string whole = Read();
  expect_kept("{ cut short", false);
  expect_kept("", false);
  expect_kept(Replaced(whole, R"("format_version": 2)", R"("format_version": 3)"), false);
  expect_kept(Replaced(whole, "cp_async_64x64x64", "a_kernel_of_tomorrow"), true);
  TunedPlanner calibrated(H200Traits());
  Calibration calibration = kH200Calibration;
  calibration.cp_async.latency_clocks = 777;
  ASSERT_TRUE(calibrated.Calibrate(calibration).ok());
  std::filesystem::remove(path_);
  ASSERT_TRUE(File().Save({&calibrated}).ok());
  expect_kept(Replaced(Read(), R"("latency_clocks": 777)", R"("latency_clocks": 0)"), true);
}

TEST_F(TuningFileTest, WhatMayNotBeReadIsKept) {
  Write("secret");
  ASSERT_EQ(chmod(path_.c_str(), 0), 0);
  const uid_t user = geteuid();
  constexpr uid_t kNobody = 65534;
  if (user == 0) {  // who may read everything
    ASSERT_EQ(chown(path_.c_str(), kNobody, kNobody), 0);
    ASSERT_EQ(chown(folder_.c_str(), kNobody, kNobody), 0);
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  TunedPlanner planner(H200Traits());
  TuningFile file(path_, kBuild);
  const Status loaded = file.Load({&planner}).status();
  const Status saved = file.Save({&planner});
  ASSERT_EQ(seteuid(user), 0);
  EXPECT_EQ(loaded.code(), StatusCode::kPermissionDenied) << loaded.ToString();
  EXPECT_TRUE(saved.ok()) << saved.ToString();
  ASSERT_EQ(chmod((path_ + ".old").c_str(), 0400), 0);
  EXPECT_EQ(Read(path_ + ".old"), "secret");
  EXPECT_TRUE(File().Load({&planner}).ok());
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms{0644});
}

TEST_F(TuningFileTest, WhatSomebodyElseHasWrittenMeanwhileIsKept) {
  SaveOne();
  TunedPlanner planner(H200Traits());
  TuningFile file(path_, kBuild);
  ASSERT_TRUE(file.Load({&planner}).ok());
  const std::string before = Read();
  std::ofstream(path_, std::ios::app) << "edited in place";
  ASSERT_TRUE(file.Save({&planner}).ok());
  EXPECT_EQ(Read(path_ + ".old"), before + "edited in place");
  Write("another file");
  ASSERT_TRUE(file.Save({&planner}).ok());
  EXPECT_EQ(Read(path_ + ".old.1"), "another file");
  // One that was not there when the server looked.
  Write("a file that was never loaded");
  ASSERT_TRUE(File().Save({&planner}).ok());
  EXPECT_EQ(Read(path_ + ".old.2"), "a file that was never loaded");
}

TEST_F(TuningFileTest, OlderBackupsAreNeverOverwritten) {
  Write("newest");
  std::filesystem::create_directory(path_ + ".old");
  std::ofstream(path_ + ".old.1") << "older";
  const TunedPlanner planner(H200Traits());
  ASSERT_TRUE(File().Save({&planner}).ok());
  EXPECT_TRUE(std::filesystem::is_directory(path_ + ".old"));
  EXPECT_EQ(Read(path_ + ".old.1"), "older");
  EXPECT_EQ(Read(path_ + ".old.2"), "newest");
  for (int i = 3; i < 100; ++i) std::ofstream(path_ + ".old." + std::to_string(i)) << i;
  Write("one too many");
  const Status full = File().Save({&planner});
  EXPECT_EQ(full.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(full.message(), AllOf(HasSubstr(path_), HasSubstr("100 old files")));
  EXPECT_EQ(Read(), "one too many");
}

TEST_F(TuningFileTest, WhatIsNoRegularFileIsRefusedAndStays) {
  const TunedPlanner planner(H200Traits());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const Status status = File().Save({&planner});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(path_), HasSubstr("is not a regular file")));
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_EQ(TuningFile("/dev/null", kBuild).Save({&planner}).code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(TuningFileTest, ALinkStaysALinkAndItsTargetIsWritten) {
  std::filesystem::create_directory(folder_ + "/elsewhere");
  const std::string target = folder_ + "/elsewhere/real.json";
  std::filesystem::create_symlink("elsewhere/real.json", path_);
  SaveOne();  // the target is not there yet
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  ASSERT_TRUE(std::filesystem::is_regular_file(target));
  std::ofstream(target) << "theirs";
  const TunedPlanner nothing(H200Traits());
  ASSERT_TRUE(File().Save({&nothing}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(Read(target + ".old"), "theirs") << "beside the file itself";
}

TEST_F(TuningFileTest, OneOwnerAtATimeWhateverTheNameOfTheFile) {
  std::filesystem::create_symlink("tuning.json", folder_ + "/link");
  TuningFile second(folder_ + "/link", kBuild);
  {
    TuningFile first(path_, kBuild);
    ASSERT_TRUE(first.Lock().ok());
    const Status refused = second.Lock();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.message(), AllOf(HasSubstr(folder_ + "/link is in use by another process"),
                                         HasSubstr(path_ + ".lock")));
    const TunedPlanner nothing(H200Traits());
    ASSERT_TRUE(first.Save({&nothing}).ok());
    EXPECT_FALSE(second.Lock().ok()) << "a save gives nothing up";
  }
  EXPECT_TRUE(second.Lock().ok());
}

TEST_F(TuningFileTest, WhereThereCanBeNoLockThePathIsNamed) {
  const Status nowhere = TuningFile(folder_ + "/no/such/file", kBuild).Lock();
  EXPECT_EQ(nowhere.code(), StatusCode::kUnavailable);
  EXPECT_THAT(nowhere.message(), HasSubstr(folder_ + "/no/such/file"));
}

}  // namespace
}  // namespace gemmd
