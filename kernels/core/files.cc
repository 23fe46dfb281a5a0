#include "kernels/core/files.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gemmd {
namespace {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// To the disk, where the file system can do that.
bool Sync(int fd) { return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP; }

// What open() would give to a new file. umask() is read by setting it, so a thread that makes a
// file meanwhile would get a wrong one; /proc tells it without.
mode_t DefaultMode() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    mode_t mask = 0;
    if (word == "Umask:" && status >> std::oct >> mask) return mode_t{0666} & ~mask;
  }
  return 0644;
}

}  // namespace

File::~File() {
  if (fd_ >= 0) close(fd_);
}

int File::Release() { return std::exchange(fd_, -1); }

Status SystemError(const std::string& path, std::string_view doing) {
  const int error = errno;
  const StatusCode code = error == ENOENT                      ? StatusCode::kNotFound
                          : error == EACCES || error == EPERM  ? StatusCode::kPermissionDenied
                          : error == ENOSPC || error == ENOMEM ? StatusCode::kResourceExhausted
                                                               : StatusCode::kUnknown;
  return {code, "cannot " + std::string(doing) + " " + path + ": " +
                    std::generic_category().message(error)};
}

StatusOr<std::string> ReadText(const std::string& path, int64_t max_bytes) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd() < 0) return SystemError(path, "open");
  return ReadText(file, path, max_bytes);
}

StatusOr<std::string> ReadText(const File& file, const std::string& path, int64_t max_bytes) {
  std::string text;
  char part[16384];
  while (true) {
    const ssize_t got = read(file.fd(), part, sizeof(part));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(path, "read");
    if (got == 0) return text;
    text.append(part, static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) > max_bytes) {
      return OutOfRange(
          "file", path + " is longer than the limit of " + std::to_string(max_bytes) + " bytes");
    }
  }
}

StatusOr<std::string> FollowLinks(const std::string& path) {
  constexpr int kMaxLinks = 40;  // the kernel's
  std::string at = path;
  for (int i = 0; i <= kMaxLinks; ++i) {
    std::error_code error;
    const std::filesystem::path next = std::filesystem::read_symlink(at, error);
    if (error) return at;  // no link; what else is wrong its use will tell
    at = (std::filesystem::path(at).parent_path() / next).string();
  }
  errno = ELOOP;
  return SystemError(path, "follow");
}

bool SameFile(const std::string& a, const std::string& b) {
  struct stat at_a {};
  struct stat at_b {};
  const bool there = stat(a.c_str(), &at_a) == 0;
  if (there != (stat(b.c_str(), &at_b) == 0)) return false;
  if (there) return at_a.st_dev == at_b.st_dev && at_a.st_ino == at_b.st_ino;
  const StatusOr<std::string> end_a = FollowLinks(a), end_b = FollowLinks(b);
  if (!end_a.ok() || !end_b.ok()) return false;
  std::error_code error;
  const auto whole_a = std::filesystem::weakly_canonical(std::filesystem::absolute(*end_a), error);
  if (error) return false;
  const auto whole_b = std::filesystem::weakly_canonical(std::filesystem::absolute(*end_b), error);
  return !error && whole_a == whole_b;
}

ReplacedFile::ReplacedFile(std::string path, std::string target, std::string temporary, int fd)
    : path_(std::move(path)),
      target_(std::move(target)),
      temporary_(std::move(temporary)),
      file_(fd) {}

ReplacedFile::ReplacedFile(ReplacedFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)) {}

ReplacedFile::~ReplacedFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

StatusOr<ReplacedFile> ReplacedFile::Create(const std::string& path, FileMode mode) {
  ASSIGN_OR_RETURN(const std::string target, FollowLinks(path));
  struct stat old {};
  const bool replaces = stat(target.c_str(), &old) == 0;
  if (replaces && !S_ISREG(old.st_mode)) {
    return InvalidArgument("file", path + " exists and is not a regular file");
  }
  std::string temporary = target + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return SystemError(path, "write");
  ReplacedFile file(path, target, temporary, fd);
  const mode_t wanted = mode == FileMode::kNew ? mode_t{0644}
                        : replaces             ? old.st_mode & mode_t{07777}
                                               : DefaultMode();
  if (fchmod(fd, wanted) != 0) return SystemError(path, "set the mode of");
  return file;
}

Status ReplacedFile::Write(const void* data, int64_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t done = write(file_.fd(), at, static_cast<size_t>(bytes));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return SystemError(path_, "write");
    at += done;
    bytes -= done;
  }
  return OkStatus();
}

Status ReplacedFile::Commit() {
  if (!Sync(file_.fd())) return SystemError(path_, "write");
  if (rename(temporary_.c_str(), target_.c_str()) != 0) return SystemError(path_, "replace");
  temporary_.clear();
  const File folder(open(FolderOf(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A folder that may be written but not read takes the name all the same.
  if (folder.fd() >= 0 && !Sync(folder.fd())) return SystemError(path_, "write the folder of");
  return OkStatus();
}

Status CheckWritable(const std::string& path) { return ReplacedFile::Create(path).status(); }

Status WriteText(const std::string& path, std::string_view text) {
  ASSIGN_OR_RETURN(ReplacedFile file, ReplacedFile::Create(path));
  RETURN_IF_ERROR(file.Write(text.data(), static_cast<int64_t>(text.size())));
  return file.Commit();
}

}  // namespace gemmd
