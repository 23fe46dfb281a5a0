// What server and client say alike of the core's types in the messages of gemmd/v1. Nothing here
// judges a value: FromProto() of an enum is nullopt for one that this build does not know, and what
// that means is the caller's to say.
#pragma once

#include <optional>

#include "gemmd/v1/types.pb.h"
#include "kernels/core/calibration.h"
#include "kernels/core/gemm_types.h"

namespace gemmd {

v1::DataType ToProto(DType type);
v1::ComputeMode ToProto(ComputeMode mode);
v1::Activation ToProto(Activation act);
v1::Transpose ToProto(Op op);
v1::BiasAxis ToProto(BiasAxis axis);  // kNone is the default axis, which nothing then reads

std::optional<DType> FromProto(v1::DataType type);           // nullopt for UNSPECIFIED, too
std::optional<ComputeMode> FromProto(v1::ComputeMode mode);  // UNSPECIFIED is kIeee
std::optional<Activation> FromProto(v1::Activation act);
std::optional<Op> FromProto(v1::Transpose op);
std::optional<BiasAxis> FromProto(v1::BiasAxis axis);

v1::Problem ToProto(const GemmProblem& problem);  // without its layouts

v1::Calibration ToProto(const Calibration& calibration);
Calibration FromProto(const v1::Calibration& in);

}  // namespace gemmd
