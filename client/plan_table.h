// Plans as gemmctl prints them.
#pragma once

#include <string>
#include <vector>

#include "client/gemm_client.h"

namespace gemmd {

// A heading and a row for each plan: narrow enough for 100 columns with the longest of the kernels'
// names and limits. "-" is what was not told.
std::string PlanTable(const std::vector<ClientPlan>& plans);

}  // namespace gemmd
