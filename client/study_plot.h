// A study as a picture.
#pragma once

#include <string>
#include <vector>

#include "client/study_report.h"

namespace gemmd {

// A standalone SVG 1.1 document: time against stages, time on a logarithmic scale, a line with
// markers for each series and, dashed in the same colour, the model's prediction. The colours
// differ for the colour-blind too; beyond seven series the markers tell them apart.
std::string StudySvg(const std::vector<StudySeries>& study);

}  // namespace gemmd
