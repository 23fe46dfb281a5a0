#include "server/metrics/pool_collector.h"

#include <utility>

#include "kernels/plan/tuned_planner.h"
#include "server/metrics/metric_text.h"

namespace gemmd {
namespace {

using prometheus::MetricFamily;

MetricFamily Single(std::string name, std::string help, double value) {
  MetricFamily family = GaugeFamily(std::move(name), std::move(help));
  AddGauge(family, {}, value);
  return family;
}

std::string DeviceLabel(const Backend& backend) { return std::to_string(backend.traits().ordinal); }

// One series a device for `first` and one for what is left of `total`.
void AddShare(MetricFamily& family, const Backend& backend, const char* first, const char* rest,
              int64_t used, int64_t total) {
  const std::string device = DeviceLabel(backend);
  AddGauge(family, {{"device", device}, {"state", first}}, static_cast<double>(used));
  AddGauge(family, {{"device", device}, {"state", rest}}, static_cast<double>(total - used));
}

}  // namespace

PoolCollector::PoolCollector(const Engine& engine, const ReplyBudget& replies,
                             std::vector<const Backend*> backends, const ServerFacts& facts)
    : engine_(engine), replies_(replies), backends_(std::move(backends)) {
  MetricFamily build = GaugeFamily("gemmd_build_info", "1; what this server was built from.");
  AddGauge(build, {{"version", LabelText(facts.version)}, {"revision", LabelText(facts.revision)}},
           1);
  MetricFamily devices = GaugeFamily("gemmd_device_info", "1 for each device that serves.");
  for (const Backend* backend : backends_) {
    AddGauge(devices,
             {{"device", DeviceLabel(*backend)},
              {"name", LabelText(backend->traits().name)},
              {"uuid", LabelText(backend->traits().uuid)}},
             1);
  }
  const std::chrono::duration<double> started = facts.started.time_since_epoch();
  constant_ = {
      std::move(build),
      std::move(devices),
      Single("gemmd_start_time_seconds", "When the server started, in Unix time.", started.count()),
      Single("gemmd_queue_limit_requests", "Most products that may wait for a lane.",
             engine_.options().max_queued_requests),
      Single("gemmd_queue_limit_bytes", "Most bytes of operands and results that may wait.",
             static_cast<double>(engine_.options().max_queued_bytes)),
      Single("gemmd_reply_limit_bytes", "Most bytes of results of open calls.",
             static_cast<double>(replies_.max_bytes())),
      Single("gemmd_tuning_file_loaded",
             "1 when the server started with what the tuning file holds, else 0.",
             facts.tuning_file_loaded ? 1 : 0)};
}

std::vector<MetricFamily> PoolCollector::Collect() const {
  MetricFamily lanes = GaugeFamily("gemmd_lanes", "Lanes of a device by state.");
  MetricFamily device_pool =
      GaugeFamily("gemmd_device_memory_bytes", "Device memory set aside at start, by state.");
  MetricFamily pinned_pool =
      GaugeFamily("gemmd_pinned_memory_bytes", "Pinned host memory set aside at start, by state.");
  for (const Backend* backend : backends_) {
    const BackendUsage usage = backend->usage();
    AddShare(lanes, *backend, "busy", "idle", usage.lanes_in_use, usage.lanes);
    AddShare(device_pool, *backend, "used", "free", usage.device_pool_used_bytes,
             usage.device_pool_bytes);
    AddShare(pinned_pool, *backend, "used", "free", usage.pinned_pool_used_bytes,
             usage.pinned_pool_bytes);
  }
  std::vector<MetricFamily> families = constant_;
  families.push_back(Single("gemmd_tuning_entries",
                            "Problems whose measured times the first device's plans are made with.",
                            static_cast<double>(engine_.planner(0).entries())));
  families.push_back(
      Single("gemmd_queue_depth", "Products that wait for a lane.", engine_.queued_requests()));
  families.push_back(Single("gemmd_queue_bytes", "Bytes of operands and results that wait.",
                            static_cast<double>(engine_.queued_bytes())));
  families.push_back(Single("gemmd_inflight_requests",
                            "Products that have a lane and are not answered yet.",
                            engine_.running_requests()));
  families.push_back(Single(
      "gemmd_reply_bytes", "Bytes of results that wait, run, or are not taken by their caller yet.",
      static_cast<double>(replies_.bytes())));
  // As the health service says it.
  const bool serving = engine_.healthy() && !engine_.draining();
  families.push_back(Single("gemmd_health",
                            "1 while every device works and new work is taken, else 0.",
                            serving ? 1 : 0));
  families.push_back(
      Single("gemmd_draining", "1 once new work is refused, else 0.", engine_.draining() ? 1 : 0));
  families.push_back(std::move(lanes));
  families.push_back(std::move(device_pool));
  families.push_back(std::move(pinned_pool));
  return families;
}

}  // namespace gemmd
