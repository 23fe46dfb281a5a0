// What the process needs of its environment before it serves.
#pragma once

#include <string>

#include "kernels/core/status.h"

namespace gemmd {

// Gives each of the descriptors 0 to 2 that is closed a null device. Otherwise the next file or
// socket would get that number, and what is meant for a log would go there. Call it first.
void OpenStandardStreams();

// The soft limit of open files becomes the hard one; the limit that then holds.
int RaiseFileLimit();

// A file that exists as long as the server answers.
class PortFile {
 public:
  // Removes what an earlier server left at `path`. INVALID_ARGUMENT naming it when something other
  // than a regular file is there: a link, a device, a folder. An empty path is no file at all.
  static StatusOr<PortFile> Claim(const std::string& path);
  ~PortFile() { Remove(); }
  PortFile(PortFile&& other) noexcept { *this = std::move(other); }
  PortFile& operator=(PortFile&& other) noexcept;

  // At once and complete. UNAVAILABLE naming the path when it cannot be written.
  Status Write(const std::string& text);
  // Removes what Write made, unless another file has taken its place.
  void Remove();

 private:
  PortFile() = default;

  std::string path_;
  int fd_ = -1;  // of what was written: while it is open, no other file has its inode
};

}  // namespace gemmd
