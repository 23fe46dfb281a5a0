// Numbers and lists as people write and read them. A parser takes a whole text, without blanks or a
// plus sign at its start, and gives nullopt for any other.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace gemmd {

// "1 problem", "2 problems": an s makes the noun's plural.
std::string Count(int64_t count, std::string_view noun);
// Six significant digits at most: "0.5", "1e+20".
std::string Short(double value);
// As few digits as say which value it is: "3.4028234663852886e+38".
std::string Exact(double value);

// Of now: "2026-01-31", in UTC.
std::string UtcDate();

// nullopt also for a number that T does not hold.
template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

// Seconds, finite and at least 0, of "500ms", "1.5s", "5m", "2h", and "30", which are seconds.
std::optional<double> ParseSeconds(std::string_view text);

// "a,b" -> {"a", "b"}; a trailing or doubled separator gives an empty part.
std::vector<std::string_view> Split(std::string_view text, char separator);
// Without the blanks, tabs and carriage returns at both ends.
std::string_view Trim(std::string_view text);

}  // namespace gemmd
