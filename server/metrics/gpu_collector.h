// Gauges of the GPUs that serve: how busy, how hot, how fast, and why not faster.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <spdlog/logger.h>

#include "server/metrics/gpu_reader.h"

namespace gemmd {

struct GpuOptions {
  std::string library = "libnvidia-ml.so.1";  // for the loader
  std::chrono::milliseconds interval{1000};   // between two readings of a device
  std::chrono::milliseconds max_age{30'000};  // of a reading that is still exported
  std::chrono::milliseconds patience{1000};   // of the destructor with a driver that hangs
};

// Thread-safe. A thread reads the devices, since a driver can keep a call for ever; a scrape gets
// what was read last, how long ago that was, and never waits. A library that is not there, or a
// device that it does not know, is a line of the log and no series.
class GpuCollector : public prometheus::Collectable {
 public:
  GpuCollector(std::vector<GpuDevice> devices, GpuOptions options,
               std::shared_ptr<spdlog::logger> log);
  // Waits for the thread, but leaves it behind where the driver keeps it past options.patience: it
  // has what it uses, and ends when the driver lets it go.
  ~GpuCollector() override;
  GpuCollector(const GpuCollector&) = delete;
  GpuCollector& operator=(const GpuCollector&) = delete;

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Shared;  // with the thread, which may live longer

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace gemmd
