#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "kernels/cuda/calibration.h"
#include "tests/bench/bench.h"

namespace gemmd::bench {
namespace {

JsonLine StartLine(const char* bench, std::string_view family) {
  JsonLine line;
  line.String("bench", bench).String("family", family);
  return line;
}

Status WriteMeasured(JsonLine line, const BenchContext& context) {
  line.Fixed("clock_hz", context.traits.clock_hz, 0);
  return context.out.Write(AddMachine(line, context));
}

Status WritePoints(std::string_view family, const RingSamples& samples,
                   const BenchContext& context) {
  for (size_t i = 0; i < samples.step_seconds.size(); ++i) {
    JsonLine line = StartLine("calibration", family);
    line.Integer("stages", static_cast<int64_t>(i) + 1)
        .Fixed("step_ns", samples.step_seconds[i] * 1e9, 3)
        .Integer("bytes", samples.step_bytes);
    RETURN_IF_ERROR(WriteMeasured(std::move(line), context));
  }
  JsonLine line = StartLine("calibration", family);
  line.Fixed("flops_per_clock", samples.flops_per_second / context.traits.clock_hz, 1);
  return WriteMeasured(std::move(line), context);
}

Status WriteResult(std::string_view family, const RingCalibration& ring,
                   const BenchContext& context) {
  JsonLine line = StartLine("calibration-result", family);
  line.Fixed("latency_clocks", ring.latency_clocks, 1)
      .Fixed("bytes_per_clock", ring.bytes_per_clock, 2)
      .Fixed("flops_per_clock", ring.flops_per_clock, 1);
  return WriteMeasured(std::move(line), context);
}

}  // namespace

Status RunCalibrate(const BenchContext& context) {
  ASSIGN_OR_RETURN(const CalibrationSamples samples,
                   MeasureCalibration(context.traits, context.measure.rounds, {}));
  // The points first: they tell why a result is refused.
  RETURN_IF_ERROR(WritePoints("cp_async", samples.cp_async, context));
  if (samples.tma) RETURN_IF_ERROR(WritePoints("tma", *samples.tma, context));
  ASSIGN_OR_RETURN(const Calibration calibration, FitCalibration(samples, context.traits));
  RETURN_IF_ERROR(WriteResult("cp_async", calibration.cp_async, context));
  return calibration.tma ? WriteResult("tma", *calibration.tma, context) : OkStatus();
}

}  // namespace gemmd::bench
