#include "tests/bench/json_line.h"

#include <cerrno>
#include <cmath>
#include <cstring>

namespace gemmd::bench {
namespace {

std::string Quoted(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      text += escape;
    } else {
      text += c;
    }
  }
  return text += '"';
}

}  // namespace

void JsonLine::Key(std::string_view key) {
  if (!members_.empty()) members_ += ',';
  members_ += Quoted(key);
  members_ += ':';
}

JsonLine& JsonLine::String(std::string_view key, std::string_view value) {
  Key(key);
  members_ += Quoted(value);
  return *this;
}

JsonLine& JsonLine::Integer(std::string_view key, int64_t value) {
  Key(key);
  members_ += std::to_string(value);
  return *this;
}

JsonLine& JsonLine::Fixed(std::string_view key, double value, int decimals) {
  Key(key);
  if (!std::isfinite(value)) {
    members_ += "null";
    return *this;
  }
  char text[400];  // the largest double has 309 digits before the point
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  members_ += text;
  return *this;
}

JsonLine& JsonLine::Flag(std::string_view key, bool value) {
  Key(key);
  members_ += value ? "true" : "false";
  return *this;
}

StatusOr<LineWriter> LineWriter::Create(const std::string& path) {
  if (path.empty()) return LineWriter(stdout);
  std::FILE* file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) {
    return InvalidArgument("out", "--out=" + path + " cannot be opened: " + std::strerror(errno));
  }
  return LineWriter(file);
}

Status LineWriter::Write(const JsonLine& line) const {
  const std::string text = line.text() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    return Internal(std::string("cannot write a result: ") + std::strerror(errno));
  }
  return OkStatus();
}

}  // namespace gemmd::bench
