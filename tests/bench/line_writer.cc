#include "tests/bench/line_writer.h"

#include <cerrno>
#include <cstring>

namespace gemmd::bench {

StatusOr<LineWriter> LineWriter::Create(const std::string& path) {
  if (path.empty()) return LineWriter(stdout);
  std::FILE* file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) {
    return InvalidArgument("out", "--out=" + path + " cannot be opened: " + std::strerror(errno));
  }
  return LineWriter(file);
}

Status LineWriter::Write(const Json& line) const {
  const std::string text = line.text() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    return Internal(std::string("cannot write a result: ") + std::strerror(errno));
  }
  return OkStatus();
}

}  // namespace gemmd::bench
