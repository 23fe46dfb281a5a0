#include "client/files.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gemmd {

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

StatusOr<ReplacedFile> ReplacedFile::Create(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status present = std::filesystem::status(path, error);
  std::string target = path;
  std::optional<mode_t> mode;  // of the file that is replaced
  if (std::filesystem::exists(present)) {
    if (!std::filesystem::is_regular_file(present)) {
      return InvalidArgument("file", path + " exists and is not a regular file");
    }
    mode = static_cast<mode_t>(present.permissions());
    target = std::filesystem::canonical(path, error).string();  // a link stays a link
    if (error) {
      return Status(StatusCode::kUnknown, "cannot resolve " + path + ": " + error.message());
    }
  }
  const std::string temporary = target + ".tmp" + std::to_string(getpid());
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return SystemError(path, "write");
  ReplacedFile file(path, target, temporary, fd);
  if (mode && fchmod(fd, *mode) != 0) return SystemError(path, "keep the mode of");
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
  if (rename(temporary_.c_str(), target_.c_str()) != 0) return SystemError(path_, "replace");
  temporary_.clear();
  return OkStatus();
}

Status CheckWritable(const std::string& path) { return ReplacedFile::Create(path).status(); }

Status WriteText(const std::string& path, std::string_view text) {
  ASSIGN_OR_RETURN(ReplacedFile file, ReplacedFile::Create(path));
  RETURN_IF_ERROR(file.Write(text.data(), static_cast<int64_t>(text.size())));
  return file.Commit();
}

}  // namespace gemmd
