// Gauges read at the moment of a scrape: queue, lanes, pools, health, what was learnt, and what
// server this is.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include "kernels/backend.h"
#include "server/engine/engine.h"
#include "server/engine/reply_budget.h"

namespace gemmd {

struct ServerFacts {
  std::string version;
  std::string revision;  // of the source
  bool tuning_file_loaded = false;
  std::chrono::system_clock::time_point started = std::chrono::system_clock::now();
};

class PoolCollector : public prometheus::Collectable {  // Thread-safe.
 public:
  // Engine, replies and backends outlive the last scrape.
  PoolCollector(const Engine& engine, const ReplyBudget& replies,
                std::vector<const Backend*> backends, const ServerFacts& facts);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Engine& engine_;
  const ReplyBudget& replies_;
  const std::vector<const Backend*> backends_;
  std::vector<prometheus::MetricFamily> constant_;  // build, devices, start, limits
};

}  // namespace gemmd
