#include "server/metrics/gpu_collector.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "kernels/core/mutex.h"
#include "server/metrics/metric_text.h"

namespace gemmd {
namespace {

using Clock = std::chrono::steady_clock;

// Each is a series; bits that none of them has are the series "other".
struct ThrottleReason {
  uint64_t bit;  // NVML's
  const char* name;
};
constexpr ThrottleReason kThrottleReasons[] = {
    {0x1, "gpu_idle"},
    {0x2, "applications_clocks"},
    {0x4, "sw_power_cap"},
    {0x8, "hw_slowdown"},
    {0x10, "sync_boost"},
    {0x20, "sw_thermal_slowdown"},
    {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake_slowdown"},
    {0x100, "display_clocks"},
};

// One device as it was read last.
struct Latest {
  std::optional<GpuSample> sample;  // nullopt: never yet
  Clock::time_point at;             // of the sample; the start where there is none
  bool gone = false;                // lost, or never there: no series
};

void AddSample(std::vector<prometheus::MetricFamily>& gauges, prometheus::MetricFamily& throttle,
               const std::string& device, const GpuSample& sample) {
  for (size_t i = 0; i < gauges.size(); ++i) {
    if (sample.values[i]) AddGauge(gauges[i], {{"device", device}}, *sample.values[i]);
  }
  if (!sample.clocks_event_reasons) return;
  uint64_t bits = *sample.clocks_event_reasons;
  for (const ThrottleReason& reason : kThrottleReasons) {
    AddGauge(throttle, {{"device", device}, {"reason", reason.name}},
             (bits & reason.bit) != 0 ? 1 : 0);
    bits &= ~reason.bit;
  }
  AddGauge(throttle, {{"device", device}, {"reason", "other"}}, bits != 0 ? 1 : 0);
}

}  // namespace

struct GpuCollector::Shared {
  Shared(std::vector<GpuDevice> gpus, GpuOptions gpu_options,
         std::shared_ptr<spdlog::logger> logger)
      : devices(std::move(gpus)), options(std::move(gpu_options)), log(std::move(logger)) {
    latest.assign(devices.size(), {.sample = {}, .at = Clock::now()});
  }

  // The thread's.
  void Run() EXCLUDES(mu) {
    ReadUntilStopped();
    MutexLock lock(mu);
    ended = true;
    changed.NotifyAll();
  }

  const std::vector<GpuDevice> devices;
  const GpuOptions options;
  const std::shared_ptr<spdlog::logger> log;

  Mutex mu;
  CondVar changed;
  std::vector<Latest> latest GUARDED_BY(mu);  // one a device
  bool stop GUARDED_BY(mu) = false;
  bool ended GUARDED_BY(mu) = false;

 private:
  void ReadUntilStopped() EXCLUDES(mu) {
    const auto reader = GpuReader::Open(options.library, devices, log);
    if (!reader.ok()) {
      log->warn("no gemmd_gpu_ metrics, which gpu-gauges=on asks for: {}",
                reader.status().message());
      MutexLock lock(mu);
      for (Latest& device : latest) device.gone = true;
      return;
    }
    for (Clock::time_point next = Clock::now();; next = Clock::now() + options.interval) {
      if (StoppedBefore(next)) return;
      for (size_t i = 0; i < devices.size(); ++i) {
        const std::optional<GpuSample> sample = (*reader)->Read(i);
        MutexLock lock(mu);
        if (stop) return;
        latest[i] = {.sample = sample, .at = Clock::now(), .gone = !sample};
      }
    }
  }

  bool StoppedBefore(Clock::time_point time) EXCLUDES(mu) {
    MutexLock lock(mu);
    while (!stop && Clock::now() < time) changed.WaitUntil(mu, time);
    return stop;
  }
};

GpuCollector::GpuCollector(std::vector<GpuDevice> devices, GpuOptions options,
                           std::shared_ptr<spdlog::logger> log)
    : shared_(std::make_shared<Shared>(std::move(devices), std::move(options), std::move(log))),
      thread_([shared = shared_] { shared->Run(); }) {}

GpuCollector::~GpuCollector() {
  const Clock::time_point limit = Clock::now() + shared_->options.patience;
  bool ended = false;
  {
    MutexLock lock(shared_->mu);
    shared_->stop = true;
    shared_->changed.NotifyAll();
    while (!shared_->ended && Clock::now() < limit) shared_->changed.WaitUntil(shared_->mu, limit);
    ended = shared_->ended;
  }
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

std::vector<prometheus::MetricFamily> GpuCollector::Collect() const {
  std::vector<prometheus::MetricFamily> families;
  for (const GpuGauge& gauge : kGpuGauges) {
    families.push_back(GaugeFamily(gauge.name, gauge.help));
  }
  prometheus::MetricFamily throttle = GaugeFamily(
      kThrottleName,
      "1 while the clocks are held down for this reason, else 0; gpu_idle: nothing runs.");
  prometheus::MetricFamily age =
      GaugeFamily("gemmd_gpu_sample_age_seconds",
                  "Since the gauges of the device were read; since the start until they are.");
  {
    MutexLock lock(shared_->mu);
    const Clock::time_point now = Clock::now();
    for (size_t i = 0; i < shared_->devices.size(); ++i) {
      const Latest& latest = shared_->latest[i];
      if (latest.gone) continue;
      const std::string device = std::to_string(shared_->devices[i].ordinal);
      AddGauge(age, {{"device", device}}, std::chrono::duration<double>(now - latest.at).count());
      if (latest.sample && now - latest.at <= shared_->options.max_age) {
        AddSample(families, throttle, device, *latest.sample);
      }
    }
  }
  families.push_back(std::move(throttle));
  families.push_back(std::move(age));
  std::erase_if(families, [](const auto& family) { return family.metric.empty(); });
  return families;
}

}  // namespace gemmd
