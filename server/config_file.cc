#include "server/config_file.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <sstream>

#include "kernels/core/files.h"

namespace gemmd {
namespace {

constexpr std::string_view kBlank = " \t\r";
constexpr int64_t kMaxFileBytes = 1 << 20;

void SkipBlanks(std::string_view* text) {
  text->remove_prefix(std::min(text->find_first_not_of(kBlank), text->size()));
}

bool IsKeyChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

// The character that \uXXXX stands for; only ASCII, which is all that QuotedForConfigFile writes.
std::optional<char> Unicode(std::string_view digits) {
  if (digits.size() < 4) return std::nullopt;
  int value = 0;
  for (const char c : digits.substr(0, 4)) {
    const size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = 16 * value + static_cast<int>(digit);
  }
  if (value > 0x7f) return std::nullopt;
  return static_cast<char>(value);
}

// Takes a quoted value off the front of `text`; nullopt when it does not end or has an escape that
// is none.
std::optional<std::string> TakeQuoted(std::string_view* text) {
  const char quote = text->front();
  text->remove_prefix(1);
  std::string out;
  while (!text->empty()) {
    char c = text->front();
    text->remove_prefix(1);
    if (c == quote) return out;
    if (c == '\\' && quote == '"') {
      if (text->empty()) return std::nullopt;
      const char escape = text->front();
      text->remove_prefix(1);
      switch (escape) {
        case '"':
        case '\\': c = escape; break;
        case 'n': c = '\n'; break;
        case 't': c = '\t'; break;
        case 'r': c = '\r'; break;
        case 'u': {
          const std::optional<char> unicode = Unicode(*text);
          if (!unicode) return std::nullopt;
          c = *unicode;
          text->remove_prefix(4);
          break;
        }
        default: return std::nullopt;
      }
    }
    out += c;
  }
  return std::nullopt;
}

bool IsBareValue(std::string_view text) {
  if (text == "true" || text == "false") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// What follows the "=" of `key`.
StatusOr<std::string> ParseValue(std::string_view text) {
  SkipBlanks(&text);
  std::string value;
  if (text.starts_with('"') || text.starts_with('\'')) {
    const std::optional<std::string> quoted = TakeQuoted(&text);
    if (!quoted) return InvalidArgument("config", "its string does not end, or has a bad escape");
    value = *quoted;
  } else if (text.starts_with('[') || text.starts_with('{')) {
    return InvalidArgument("config", "has an array or a table; one \"string\" is the limit");
  } else {
    const std::string_view bare = text.substr(0, text.find_first_of(" \t\r#"));
    if (bare.empty()) return InvalidArgument("config", "has no value");
    if (!IsBareValue(bare)) {
      return InvalidArgument("config",
                             "its value is neither a whole number nor true nor false; "
                             "other text stands in quotes");
    }
    value = bare;
    text.remove_prefix(bare.size());
  }
  SkipBlanks(&text);
  if (!text.empty() && !text.starts_with('#')) {
    return InvalidArgument("config", "has more after its value; one value is the limit");
  }
  return value;
}

}  // namespace

StatusOr<std::vector<std::pair<std::string, std::string>>> ReadConfigFile(const std::string& path) {
  const StatusOr<std::string> text = ReadText(path, kMaxFileBytes);
  if (text.status().code() == StatusCode::kOutOfRange) {
    return InvalidArgument("config", "config: " + text.status().message());
  }
  if (!text.ok()) return NotFound("config: " + text.status().message()).WithField("config");
  std::vector<std::pair<std::string, std::string>> out;
  int number = 0;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto refuse = [&](const std::string& what) {
      return InvalidArgument("config",
                             "config=" + path + " line " + std::to_string(number) + ": " + what);
    };
    std::string_view rest = line;
    SkipBlanks(&rest);
    if (rest.empty() || rest.starts_with('#')) continue;
    if (rest.starts_with('[')) return refuse("tables are not known here; keys stand alone");
    const size_t length = static_cast<size_t>(
        std::distance(rest.begin(), std::find_if_not(rest.begin(), rest.end(), IsKeyChar)));
    const std::string key(rest.substr(0, length));
    rest.remove_prefix(length);
    SkipBlanks(&rest);
    if (key.empty() || !rest.starts_with('=')) return refuse("is not `key = value`");
    StatusOr<std::string> value = ParseValue(rest.substr(1));
    if (!value.ok()) return refuse(key + " " + value.status().message());
    const bool twice =
        std::any_of(out.begin(), out.end(), [&](const auto& item) { return item.first == key; });
    if (twice) return refuse(key + " comes twice; once is the limit");
    out.emplace_back(key, *std::move(value));
  }
  return out;
}

std::string QuotedForConfigFile(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace gemmd
