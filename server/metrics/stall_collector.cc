#include "server/metrics/stall_collector.h"

#include <string>
#include <utility>

#include "server/metrics/metric_text.h"

namespace gemmd {

using prometheus::MetricFamily;

std::vector<MetricFamily> StallCollector::Collect() const {
  const StallTotals totals = sampler_.totals();
  MetricFamily up =
      GaugeFamily("gemmd_pc_sampling_up",
                  "1 while the program counters of every device are sampled, else 0: pc-sampling "
                  "is off, or something is in the way that the log names.");
  AddGauge(up, {}, totals.up ? 1 : 0);
  MetricFamily seconds = CounterFamily("gemmd_pc_sampling_seconds_total",
                                       "Time whose samples of program counters were read, over all "
                                       "devices.");
  AddCounter(seconds, {}, std::chrono::duration<double>(totals.sampled).count());
  MetricFamily dropped = CounterFamily("gemmd_pc_sampling_dropped_samples_total",
                                       "Samples of program counters that the hardware dropped.");
  AddCounter(dropped, {}, static_cast<double>(totals.dropped));
  MetricFamily samples = CounterFamily("gemmd_kernel_stall_samples_total",
                                       "Samples of warps by what they waited for, as the driver "
                                       "names it; selected: they issued.");
  for (const auto& [key, count] : totals.samples) {
    const auto& [kernel, reason] = key;
    AddCounter(samples,
               {{"kernel", std::string(SampledKernelName(kernel))}, {"reason", LabelText(reason)}},
               static_cast<double>(count));
  }
  std::vector<MetricFamily> families = {std::move(up), std::move(seconds), std::move(dropped)};
  if (!samples.metric.empty()) families.push_back(std::move(samples));
  return families;
}

}  // namespace gemmd
