// How quantities are worded and tables laid out for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gemmd {

std::string Bytes(int64_t bytes);             // "64.0 MiB"
std::string Time(double seconds);             // "12.3 us"
std::string LongTime(double seconds);         // "42 s", "3 min 20 s", "2 h 5 min"
std::string Fixed(double value, int digits);  // digits behind the point

// Rows of cells, in columns as wide as their widest cell; the first row is the heading. A line has
// no blanks at its end.
std::string TableText(const std::vector<std::vector<std::string>>& rows);

}  // namespace gemmd
