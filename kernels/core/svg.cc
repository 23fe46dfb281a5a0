#include "kernels/core/svg.h"

#include "kernels/core/tables.h"

namespace gemmd {

std::string SvgText(std::string_view text) {
  std::string out;
  for (const char ch : text) {
    const auto byte = static_cast<unsigned char>(ch);
    switch (ch) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      // XML refuses most control characters, and what is not UTF-8.
      default: out += byte < 0x20 || byte > 0x7e ? '?' : ch;
    }
  }
  return out;
}

std::string SvgNumber(double value) { return Fixed(value, 1); }

}  // namespace gemmd
