// One result as a line of JSON, and where the lines go.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/core/status.h"

namespace gemmd::bench {

// Keys in the order added, no spaces. Keys are plain words; values may be anything: what JSON
// cannot hold in a string is escaped, and a number that is not finite becomes null.
class JsonLine {
 public:
  JsonLine& String(std::string_view key, std::string_view value);
  JsonLine& Integer(std::string_view key, int64_t value);
  JsonLine& Fixed(std::string_view key, double value, int decimals);
  JsonLine& Flag(std::string_view key, bool value);

  std::string text() const { return "{" + members_ + "}"; }  // without a newline

 private:
  void Key(std::string_view key);

  std::string members_;
};

// Standard output, or the end of a file.
class LineWriter {
 public:
  // Empty path: standard output. INVALID_ARGUMENT naming --out where the file cannot be opened.
  static StatusOr<LineWriter> Create(const std::string& path);

  // On disk (or with the reader) when it returns, so that lines before a crash are kept.
  Status Write(const JsonLine& line) const;

 private:
  struct Closer {
    void operator()(std::FILE* file) const {
      if (file != stdout) (void)std::fclose(file);
    }
  };
  explicit LineWriter(std::FILE* file) : file_(file) {}

  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace gemmd::bench
