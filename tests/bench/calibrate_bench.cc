#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "kernels/cuda/calibration.h"
#include "tests/bench/bench.h"

namespace gemmd::bench {
namespace {

Json StartLine(const char* bench, std::string_view family) {
  Json line = Json::Object();
  line.Set("bench", bench).Set("family", family);
  return line;
}

Status WriteMeasured(Json line, const BenchContext& context) {
  line.Set("clock_hz", Json::Rounded(context.traits.clock_hz, 0));
  return context.out.Write(AddMachine(line, context));
}

Status WritePoints(std::string_view family, const RingSamples& samples,
                   const BenchContext& context) {
  for (size_t i = 0; i < samples.step_seconds.size(); ++i) {
    Json line = StartLine("calibration", family);
    line.Set("stages", static_cast<int64_t>(i) + 1)
        .Set("step_ns", Json::Rounded(samples.step_seconds[i] * 1e9, 3))
        .Set("bytes", samples.step_bytes);
    RETURN_IF_ERROR(WriteMeasured(std::move(line), context));
  }
  Json line = StartLine("calibration", family);
  line.Set("flops_per_clock", Json::Rounded(samples.flops_per_second / context.traits.clock_hz, 1));
  return WriteMeasured(std::move(line), context);
}

Status WriteResult(std::string_view family, const RingCalibration& ring,
                   const BenchContext& context) {
  Json line = StartLine("calibration-result", family);
  line.Set("latency_clocks", Json::Rounded(ring.latency_clocks, 1))
      .Set("bytes_per_clock", Json::Rounded(ring.bytes_per_clock, 2))
      .Set("flops_per_clock", Json::Rounded(ring.flops_per_clock, 1));
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
