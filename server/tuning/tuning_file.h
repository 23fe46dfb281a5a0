// Keeps what planners have learnt from one run of the server to the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "kernels/core/files.h"
#include "kernels/core/mutex.h"
#include "kernels/core/status.h"
#include "kernels/plan/tuned_planner.h"

namespace gemmd {

struct LoadedTuning {
  int calibrated = 0;  // planners that have the file's calibration
  Status calibration;  // not OK: there is one that cannot be; names the first, and says why
  Status device;       // not OK: there is one that this server has no planner for; likewise
  int problems = 0;    // that the planners learnt
  int skipped = 0;     // that they did not: a kernel or plan that this server does not have
  int dropped = 0;     // that they learnt and forgot: more than TuningTable::kMaxEntries of one
};

// A file of JSON: proto/gemmd/v1/tuning.proto. It belongs to one build, and what it holds to one
// device each, since the times of another tell nothing of this one. What stands there and is not
// what this object has read in full or written itself is never lost: a save keeps it beside the new
// file.
class TuningFile {  // Thread-safe.
 public:
  static constexpr int64_t kMaxBytes = int64_t{64} << 20;  // for each planner

  // `build` is the server's version and revision.
  TuningFile(std::string path, std::string build);

  const std::string& path() const { return path_; }

  // Takes the file for this object, until that ends or its process does, by a lock on a file beside
  // it, PATH.lock, which stays. Whatever else is at the path is not looked at.
  //   FAILED_PRECONDITION  another process has it
  //   UNAVAILABLE          there can be no lock here: a file system that is read-only or has none
  Status Lock();

  // Teaches `planners`, of which no two have devices of one name and number of SMs; they learn
  // nothing on error. Each message names the path. A calibration that cannot be is left out, and is
  // no error; nor is a device that no planner is of, where there are others.
  //   NOT_FOUND            there is no file
  //   FAILED_PRECONDITION  of other devices, another driver, build or format
  //   DATA_LOSS            cut short or damaged
  //   RESOURCE_EXHAUSTED   more than kMaxBytes a planner
  //   INVALID_ARGUMENT     not a regular file
  //   PERMISSION_DENIED    it is there and cannot be read
  StatusOr<LoadedTuning> Load(const std::vector<TunedPlanner*>& planners) EXCLUDES(mu_);

  // Writes all that `planners` have learnt, at once: whoever looks finds the old file or the new
  // one, whatever ends the process. The old one is kept as PATH.old, or PATH.old.1 and so on where
  // that is taken, when Load refused it or left something out, or somebody else has written it.
  // FAILED_PRECONDITION naming the path and why it cannot be written, or the old one not kept.
  Status Save(const std::vector<const TunedPlanner*>& planners) EXCLUDES(mu_);

 private:
  struct Version {  // of a file's content
    dev_t device = 0;
    ino_t inode = 0;
    off_t bytes = 0;
    int64_t seconds = 0, nanoseconds = 0;  // of its last change

    friend bool operator==(const Version&, const Version&) = default;
  };
  static Version VersionOf(const struct stat& info);
  static std::optional<Version> VersionAt(const std::string& path);

  Status Refuse(const Status& why) const;
  StatusOr<std::string> Text(const std::vector<const TunedPlanner*>& planners) const;
  Status KeepOld(const std::string& target) const;

  const std::string path_, build_;
  std::optional<File> lock_;

  Mutex mu_;
  // What may be replaced: its content is in the planner, or kept.
  std::optional<Version> replaceable_ GUARDED_BY(mu_);
};

}  // namespace gemmd
