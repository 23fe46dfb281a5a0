// What the client learnt, as JSON: numbers in base units, null for what is not known.
#pragma once

#include "client/gemm_client.h"
#include "kernels/core/json.h"

namespace gemmd {

Json ToJson(const ClientPlan& plan);
Json ToJson(const StallSample& stalls);
Json KnownSeconds(double seconds);  // null for 0

}  // namespace gemmd
