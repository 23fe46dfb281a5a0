// Pieces of SVG documents.
#pragma once

#include <string>
#include <string_view>

namespace gemmd {

// `text` as XML holds it: markup escaped, and what XML refuses, or is not ASCII, as '?'.
std::string SvgText(std::string_view text);
// A length or a place: one digit behind the point.
std::string SvgNumber(double value);

}  // namespace gemmd
