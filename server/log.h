// The server's log: readable lines for a console, or one JSON object a line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <spdlog/formatter.h>
#include <spdlog/logger.h>

namespace gemmd {

enum class LogFormat : uint8_t { kConsole, kJson };
enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };

std::string_view Name(LogFormat format);  // "console", "json"
std::string_view Name(LogLevel level);    // "debug", "info", "warn", "error"

// To standard error, flushed at every line. Thread-safe.
std::shared_ptr<spdlog::logger> MakeLogger(LogFormat format, LogLevel level);

// Sends gRPC's own messages to `log`, which must live as long as the process uses gRPC.
void RouteGrpcLog(std::shared_ptr<spdlog::logger> log);

// {"time":"2026-01-31T12:00:00.000000Z","level":"info","thread":12,"message":"..."} and a newline.
std::unique_ptr<spdlog::formatter> MakeJsonFormatter();

// `text` as the inside of a JSON string; bytes that are not UTF-8 become U+FFFD.
std::string JsonEscaped(std::string_view text);

}  // namespace gemmd
