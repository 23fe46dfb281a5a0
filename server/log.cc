#include "server/log.h"

#include <cctype>
#include <chrono>
#include <ctime>
#include <utility>

#include <grpc/support/log.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "kernels/core/utf8.h"

namespace gemmd {
namespace {

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& msg, spdlog::memory_buf_t& dest) override {
    const auto since_epoch = msg.time.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_epoch);
    const auto micros =
        std::chrono::duration_cast<std::chrono::microseconds>(since_epoch - seconds).count();
    const std::time_t time = seconds.count();
    std::tm utc{};
    gmtime_r(&time, &utc);
    char stamp[32];
    std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    const auto level = spdlog::level::to_string_view(msg.level);
    const std::string line =
        fmt::format(R"({{"time":"{}.{:06}Z","level":"{}","thread":{},"message":"{}"}})"
                    "\n",
                    stamp, micros, std::string_view(level.data(), level.size()), msg.thread_id,
                    JsonEscaped({msg.payload.data(), msg.payload.size()}));
    dest.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

std::string_view Name(LogFormat format) {
  return format == LogFormat::kConsole ? "console" : "json";
}

std::string_view Name(LogLevel level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warn", "error"};
  return kNames[static_cast<int>(level)];
}

std::string JsonEscaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
      continue;
    }
    const char c = text[0];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::unique_ptr<spdlog::formatter> MakeJsonFormatter() { return std::make_unique<JsonFormatter>(); }

std::shared_ptr<spdlog::logger> MakeLogger(LogFormat format, LogLevel level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto log = std::make_shared<spdlog::logger>("gemmd", std::move(sink));
  if (format == LogFormat::kJson) {
    log->set_formatter(MakeJsonFormatter());
  } else {
    log->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%-7l%$ %v");
  }
  log->set_level(ToSpdlog(level));
  log->flush_on(spdlog::level::trace);
  return log;
}

void RouteGrpcLog(std::shared_ptr<spdlog::logger> log) {
  // gRPC takes a bare function pointer, so the logger has to be the process's default one.
  spdlog::set_default_logger(std::move(log));
  gpr_set_log_function([](gpr_log_func_args* args) {
    spdlog::logger* const out = spdlog::default_logger_raw();
    if (out == nullptr) return;  // the process is ending
    const auto level = args->severity == GPR_LOG_SEVERITY_ERROR  ? spdlog::level::warn
                       : args->severity == GPR_LOG_SEVERITY_INFO ? spdlog::level::info
                                                                 : spdlog::level::debug;
    out->log(level, "grpc: {}", args->message);
  });
}

}  // namespace gemmd
