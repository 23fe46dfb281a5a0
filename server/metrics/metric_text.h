// What every metric here shares: bounds of histograms, and text that is safe as a label.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gemmd {

// Label values go out as UTF-8 and the names of devices come from drivers: whatever is not
// printable ASCII becomes '?'. (The serializer escapes quotes, backslashes and newlines itself, but
// checks no encoding.)
std::string LabelText(std::string_view text);

// first, first * factor, ... : `count` of them.
std::vector<double> GeometricBounds(double first, double factor, int count);

}  // namespace gemmd
