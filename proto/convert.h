// What server and client say alike of the core's types in the messages of gemmd/v1. Nothing here
// judges a value: FromProto() of an enum is nullopt for one that this build does not know, and what
// that means is the caller's to say.
#pragma once

#include <optional>

#include "gemmd/v1/types.pb.h"
#include "kernels/core/calibration.h"

namespace gemmd {

v1::Calibration ToProto(const Calibration& calibration);
Calibration FromProto(const v1::Calibration& in);

}  // namespace gemmd
