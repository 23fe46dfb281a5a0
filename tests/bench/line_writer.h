// Where results go, each a line of JSON.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "kernels/core/json.h"
#include "kernels/core/status.h"

namespace gemmd::bench {

// Standard output, or the end of a file.
class LineWriter {
 public:
  // Empty path: standard output. INVALID_ARGUMENT naming --out where the file cannot be opened.
  static StatusOr<LineWriter> Create(const std::string& path);

  // On disk (or with the reader) when it returns, so that lines before a crash are kept.
  Status Write(const Json& line) const;

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
