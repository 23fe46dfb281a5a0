// Files as gemmctl reads and writes them. Statuses name the path: NOT_FOUND, PERMISSION_DENIED,
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

// A regular file that is written or replaced as a whole: a reader sees the old one or the whole new
// one, which keeps the old one's mode. What is not committed leaves nothing behind.
class ReplacedFile {
 public:
  static StatusOr<ReplacedFile> Create(const std::string& path);
  ~ReplacedFile();
  ReplacedFile(ReplacedFile&& other) noexcept;
  ReplacedFile& operator=(ReplacedFile&&) = delete;
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  Status Write(const void* data, int64_t bytes);
  Status Commit();  // once

 private:
  ReplacedFile(std::string path, std::string target, std::string temporary, int fd);

  std::string path_;       // as the caller named it
  std::string target_;     // the file itself, where `path_` is a link
  std::string temporary_;  // beside it; empty: nothing to remove
  File file_;
};

// Whether WriteText() could write there now. Leaves the file as it is.
Status CheckWritable(const std::string& path);
Status WriteText(const std::string& path, std::string_view text);

}  // namespace gemmd
