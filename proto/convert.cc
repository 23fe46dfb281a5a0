#include "proto/convert.h"

#include <utility>

namespace gemmd {
namespace {

// A value of an enum, and that of the other side.
template <typename Core, typename Wire>
using Pair = std::pair<Core, Wire>;

constexpr Pair<DType, v1::DataType> kTypes[] = {
    {DType::kF16, v1::DATA_TYPE_F16},        {DType::kBF16, v1::DATA_TYPE_BF16},
    {DType::kF32, v1::DATA_TYPE_F32},        {DType::kF64, v1::DATA_TYPE_F64},
    {DType::kF8E4M3, v1::DATA_TYPE_F8_E4M3}, {DType::kF8E5M2, v1::DATA_TYPE_F8_E5M2},
    {DType::kI8, v1::DATA_TYPE_I8},          {DType::kI32, v1::DATA_TYPE_I32}};
constexpr Pair<ComputeMode, v1::ComputeMode> kModes[] = {
    {ComputeMode::kIeee, v1::COMPUTE_MODE_IEEE},
    {ComputeMode::kTf32, v1::COMPUTE_MODE_TF32},
    {ComputeMode::kTf32x3, v1::COMPUTE_MODE_TF32X3}};
constexpr Pair<Activation, v1::Activation> kActivations[] = {
    {Activation::kNone, v1::ACTIVATION_NONE},
    {Activation::kRelu, v1::ACTIVATION_RELU},
    {Activation::kGelu, v1::ACTIVATION_GELU},
    {Activation::kSilu, v1::ACTIVATION_SILU}};
constexpr Pair<Op, v1::Transpose> kOps[] = {{Op::kN, v1::TRANSPOSE_NONE},
                                            {Op::kT, v1::TRANSPOSE_TRANS}};
constexpr Pair<BiasAxis, v1::BiasAxis> kAxes[] = {{BiasAxis::kPerColumn, v1::BIAS_AXIS_PER_COLUMN},
                                                  {BiasAxis::kPerRow, v1::BIAS_AXIS_PER_ROW}};

template <typename Core, typename Wire, size_t kCount>
Wire WireOf(Core value, const Pair<Core, Wire> (&pairs)[kCount]) {
  for (const auto& [core, wire] : pairs) {
    if (core == value) return wire;
  }
  return Wire{};
}

template <typename Core, typename Wire, size_t kCount>
std::optional<Core> CoreOf(Wire value, const Pair<Core, Wire> (&pairs)[kCount]) {
  for (const auto& [core, wire] : pairs) {
    if (wire == value) return core;
  }
  return std::nullopt;
}

void Encode(const RingCalibration& ring, v1::RingCalibration* out) {
  out->set_latency_clocks(ring.latency_clocks);
  out->set_bytes_per_clock(ring.bytes_per_clock);
  out->set_flops_per_clock(ring.flops_per_clock);
}

RingCalibration Decode(const v1::RingCalibration& in) {
  return {.latency_clocks = in.latency_clocks(),
          .bytes_per_clock = in.bytes_per_clock(),
          .flops_per_clock = in.flops_per_clock()};
}

}  // namespace

v1::DataType ToProto(DType type) { return WireOf(type, kTypes); }
v1::ComputeMode ToProto(ComputeMode mode) { return WireOf(mode, kModes); }
v1::Activation ToProto(Activation act) { return WireOf(act, kActivations); }
v1::Transpose ToProto(Op op) { return WireOf(op, kOps); }
v1::BiasAxis ToProto(BiasAxis axis) { return WireOf(axis, kAxes); }

std::optional<DType> FromProto(v1::DataType type) { return CoreOf(type, kTypes); }
std::optional<ComputeMode> FromProto(v1::ComputeMode mode) {
  return mode == v1::COMPUTE_MODE_UNSPECIFIED ? ComputeMode::kIeee : CoreOf(mode, kModes);
}
std::optional<Activation> FromProto(v1::Activation act) { return CoreOf(act, kActivations); }
std::optional<Op> FromProto(v1::Transpose op) { return CoreOf(op, kOps); }
std::optional<BiasAxis> FromProto(v1::BiasAxis axis) { return CoreOf(axis, kAxes); }

v1::Problem ToProto(const GemmProblem& problem) {
  v1::Problem out;
  out.set_m(problem.m);
  out.set_n(problem.n);
  out.set_k(problem.k);
  out.set_batch(problem.batch);
  out.set_trans_a(ToProto(problem.op_a));
  out.set_trans_b(ToProto(problem.op_b));
  out.set_type_a(ToProto(problem.type_a));
  out.set_type_b(ToProto(problem.type_b));
  out.set_type_d(ToProto(problem.type_d));
  out.set_compute_mode(ToProto(problem.mode));
  out.set_alpha(problem.alpha);
  out.set_beta(problem.beta);
  out.set_bias_axis(ToProto(problem.bias));
  out.set_activation(ToProto(problem.act));
  out.set_deterministic(problem.deterministic);
  return out;
}

v1::Calibration ToProto(const Calibration& calibration) {
  v1::Calibration out;
  Encode(calibration.cp_async, out.mutable_cp_async());
  if (calibration.tma) Encode(*calibration.tma, out.mutable_tma());
  return out;
}

Calibration FromProto(const v1::Calibration& in) {
  Calibration out{.cp_async = Decode(in.cp_async()), .tma = {}};
  if (in.has_tma()) out.tma = Decode(in.tma());
  return out;
}

}  // namespace gemmd
