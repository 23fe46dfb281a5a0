// Keeps what a planner has learnt from one run of the server to the next.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "kernels/core/status.h"
#include "kernels/plan/tuned_planner.h"

namespace gemmd {

struct LoadedTuning {
  bool calibrated = false;  // the planner has the file's calibration
  Status calibration;       // not OK: there is one and it cannot be; says why
  int problems = 0;         // that the planner learnt
  int skipped = 0;          // that it did not: a kernel or plan that this server does not have
};

// A file of JSON: proto/gemmd/v1/tuning.proto. It belongs to one device and one build, since the
// times of another tell nothing of this one.
class TuningFile {  // Thread-safe.
 public:
  static constexpr int64_t kMaxBytes = int64_t{64} << 20;

  // `build` is the server's version and revision.
  TuningFile(std::string path, std::string build);

  const std::string& path() const { return path_; }

  // Teaches `planner`, which learns nothing on error. Each message names the path. A calibration
  // that cannot be is left out, and is no error.
  //   NOT_FOUND            there is no file
  //   FAILED_PRECONDITION  of another device, driver or build, or of a newer format
  //   DATA_LOSS            cut short or damaged
  //   RESOURCE_EXHAUSTED   more than kMaxBytes
  //   INVALID_ARGUMENT     not a regular file
  //   PERMISSION_DENIED    it is there and cannot be read
  StatusOr<LoadedTuning> Load(TunedPlanner& planner) const;

  // Writes all that `planner` has learnt, at once: whoever looks finds the old file or the new one,
  // whatever ends the process. A file that Load refused is kept as path().old. FAILED_PRECONDITION
  // naming the path and why it cannot be written.
  Status Save(const TunedPlanner& planner) const;

 private:
  const std::string path_, build_;
  mutable std::atomic<bool> refused_{false};  // what is there was, and still is there
};

}  // namespace gemmd
