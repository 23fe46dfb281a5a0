// Files that are read or replaced as a whole. Statuses name the path: NOT_FOUND, PERMISSION_DENIED,
// RESOURCE_EXHAUSTED or UNKNOWN with the system's reason, INVALID_ARGUMENT for what is no file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/core/status.h"

namespace gemmd {

class File {  // Owns a descriptor.
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File();
  File(File&& other) noexcept : fd_(other.Release()) {}
  File& operator=(File&&) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int Release();
  int fd_;
};

// What errno says; `doing` is a verb: "cannot open x.npy: No such file or directory".
Status SystemError(const std::string& path, std::string_view doing);

// All of a file or a pipe. OUT_OF_RANGE for more than `max_bytes`.
StatusOr<std::string> ReadText(const std::string& path, int64_t max_bytes);
// Likewise of one that is open; `path` is for messages.
StatusOr<std::string> ReadText(const File& file, const std::string& path, int64_t max_bytes);

// Where the links that `path` may be lead: the file itself, which need not be there. UNKNOWN for
// links that lead in a circle.
StatusOr<std::string> FollowLinks(const std::string& path);

// Whether both name one file, or would once it is there. False where that cannot be known.
bool SameFile(const std::string& a, const std::string& b);

enum class FileMode : uint8_t {
  kOfOld,  // that of the file that is replaced; of a new one, what the process gives to files
  kNew,    // everybody may read, the owner may write
};

// A regular file that is written or replaced as a whole: whatever ends the process or the machine,
// a reader finds the old one or the whole new one. A link stays a link. What is not committed
// leaves nothing behind.
class ReplacedFile {
 public:
  static StatusOr<ReplacedFile> Create(const std::string& path, FileMode mode = FileMode::kOfOld);
  ~ReplacedFile();
  ReplacedFile(ReplacedFile&& other) noexcept;
  ReplacedFile& operator=(ReplacedFile&&) = delete;
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  int fd() const { return file_.fd(); }
  const std::string& target() const { return target_; }  // the file itself, where `path` is a link

  Status Write(const void* data, int64_t bytes);
  // Once: the file is on the disk before it has its name, and its name is when this returns.
  Status Commit();

 private:
  ReplacedFile(std::string path, std::string target, std::string temporary, int fd);

  std::string path_;  // as the caller named it
  std::string target_;
  std::string temporary_;  // beside target_; empty: nothing to remove
  File file_;
};

// Whether WriteText() could write there now. Leaves the file as it is.
Status CheckWritable(const std::string& path);
Status WriteText(const std::string& path, std::string_view text);

}  // namespace gemmd
