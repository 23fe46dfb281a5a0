// What a server is told at start, and the only reader of flags, of the configuration file and of
// the environment: a flag wins over a GEMMD_ variable, that over the file, and that over the
// default.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/backend_factory.h"
#include "kernels/core/status.h"
#include "server/log.h"

namespace gemmd {

struct Endpoint {
  std::string host;  // "127.0.0.1", "[::1]", "localhost"
  int port = 0;      // 0: a free one

  std::string ToString() const { return host + ":" + std::to_string(port); }
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

struct Config {
  Endpoint listen{"127.0.0.1", 50051};
  bool metrics_enabled = true;
  Endpoint metrics{"127.0.0.1", 9464};
  bool gpu_gauges = true;     // in the metrics, of the CUDA devices that serve
  bool allow_remote = false;  // endpoints other than loopback
  std::string port_file;      // empty: none

  BackendOptions backend;

  int64_t max_message_bytes = int64_t{64} << 20;  // of one whole request or reply
  int max_queued_requests = 1024;
  int64_t max_queued_bytes = int64_t{2} << 30;
  int64_t max_reply_bytes = int64_t{2} << 30;  // of results of open calls; >= max_message_bytes
  std::chrono::milliseconds drain_timeout{30'000};
  std::chrono::milliseconds reader_timeout{30'000};  // of a Study whose caller takes no point

  std::string tuning_file;            // empty: none
  bool background_tuning = false;     // tune what was served while idle
  int background_share_percent = 10;  // of wall time that it may measure in, 1 to 100

  LogFormat log_format = LogFormat::kConsole;
  LogLevel log_level = LogLevel::kInfo;

  // In the configuration file's own format (TOML), every setting, with units.
  std::string ToString() const;
};

// What the command line asks for.
struct Invocation {
  Config config;
  bool serve = true;  // false: print `text` and exit 0 (--help, --version, --print-config)
  std::string text;
};

// An environment variable's value, or null: std::getenv.
using GetEnv = std::function<const char*(const char* name)>;

// `args` without the program's name; `version` is what --version prints. INVALID_ARGUMENT with the
// setting, its value and its limit; NOT_FOUND for a configuration file that cannot be read.
StatusOr<Invocation> ParseInvocation(const std::vector<std::string>& args, const GetEnv& getenv,
                                     const std::string& version);

// "64MiB", "2 GiB", "512" (bytes). INVALID_ARGUMENT naming `field`.
StatusOr<int64_t> ParseBytes(const std::string& field, const std::string& text);

}  // namespace gemmd
