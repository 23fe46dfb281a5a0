#include "server/metrics/metric_text.h"

namespace gemmd {

std::string LabelText(std::string_view text) {
  std::string safe(text);
  for (char& c : safe) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return safe;
}

std::vector<double> GeometricBounds(double first, double factor, int count) {
  std::vector<double> bounds;
  for (double bound = first; static_cast<int>(bounds.size()) < count; bound *= factor) {
    bounds.push_back(bound);
  }
  return bounds;
}

}  // namespace gemmd
