#include "kernels/core/tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>

namespace gemmd {
namespace {

std::string Scaled(double value, const char* unit) {
  return Fixed(value, value < 10 ? 2 : 1) + " " + unit;
}

}  // namespace

std::string Fixed(double value, int digits) {
  std::array<char, 400> text;  // the largest double has 309 digits
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string Bytes(int64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return Scaled(value, units[unit]);
}

std::string Time(double seconds) {
  if (seconds < 1e-3) return Scaled(seconds * 1e6, "us");
  if (seconds < 1) return Scaled(seconds * 1e3, "ms");
  return Scaled(seconds, "s");
}

std::string LongTime(double seconds) {
  constexpr double kMost = 1e9;  // beyond it nobody reads seconds, and it fits 64 bits
  const double bounded = seconds > 0 ? std::min(seconds, kMost) : 0;  // 0 for NaN
  const auto whole = static_cast<int64_t>(std::ceil(bounded));
  const auto part = [](int64_t value, const char* unit) {
    return std::to_string(value) + " " + unit;
  };
  if (whole < 60) return part(whole, "s");
  if (whole < 3600) return part(whole / 60, "min ") + part(whole % 60, "s");
  return part(whole / 3600, "h ") + part(whole % 3600 / 60, "min");
}

std::string TableText(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      line.append(widths[i] - row[i].size() + 2, ' ');
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace gemmd
