#include "proto/convert.h"

namespace gemmd {
namespace {

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
