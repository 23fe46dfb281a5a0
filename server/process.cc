#include "server/process.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gemmd {
namespace {

constexpr mode_t kPortFileMode = 0644;

bool WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

void OpenStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    // open() takes the lowest number that is free, which is this one.
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd) std::abort();
  }
}

int RaiseFileLimit() {
  constexpr rlim_t kEnough = 1 << 20;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  const rlim_t wanted = std::max(files.rlim_cur, std::min(files.rlim_max, kEnough));
  const rlimit raised{.rlim_cur = wanted, .rlim_max = files.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) files = raised;
  return static_cast<int>(std::min<rlim_t>(files.rlim_cur, kEnough));
}

StatusOr<PortFile> PortFile::Claim(const std::string& path) {
  PortFile out;
  out.path_ = path;
  if (path.empty()) return out;
  struct stat there {};
  if (lstat(path.c_str(), &there) != 0) {
    if (errno == ENOENT) return out;
    return InvalidArgument("port-file", "port-file=" + path + ": " + std::strerror(errno));
  }
  if (!S_ISREG(there.st_mode)) {
    return InvalidArgument("port-file", "port-file=" + path + " exists and is not a regular file");
  }
  if (unlink(path.c_str()) != 0) {
    return InvalidArgument("port-file", "port-file=" + path + " is there and cannot be removed: " +
                                            std::strerror(errno));
  }
  return out;
}

PortFile& PortFile::operator=(PortFile&& other) noexcept {
  if (this == &other) return *this;
  Remove();
  path_ = std::move(other.path_);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

Status PortFile::Write(const std::string& text) {
  if (path_.empty()) return OkStatus();
  const auto refuse = [this](int error) {
    return Unavailable("port-file=" + path_ + " cannot be written: " + std::strerror(error));
  };
  std::string unfinished = path_ + ".XXXXXX";
  const int fd = mkostemp(unfinished.data(), O_CLOEXEC);
  if (fd < 0) return refuse(errno);
  if (WriteAll(fd, text) && fchmod(fd, kPortFileMode) == 0 &&
      std::rename(unfinished.c_str(), path_.c_str()) == 0) {
    fd_ = fd;
    return OkStatus();
  }
  const int error = errno;
  close(fd);
  unlink(unfinished.c_str());
  return refuse(error);
}

void PortFile::Remove() {
  if (fd_ < 0) return;
  struct stat ours {
  }, there{};
  if (fstat(fd_, &ours) == 0 && lstat(path_.c_str(), &there) == 0 && there.st_dev == ours.st_dev &&
      there.st_ino == ours.st_ino) {
    unlink(path_.c_str());
  }
  close(std::exchange(fd_, -1));
}

}  // namespace gemmd
