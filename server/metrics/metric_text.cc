#include "server/metrics/metric_text.h"

#include <utility>

namespace gemmd {

std::string LabelText(std::string_view text) {
  std::string safe(text);
  for (char& c : safe) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return safe;
}

std::vector<double> GeometricBounds(double first, double factor, int count) {
  std::vector<double> bounds;
  for (double bound = first; static_cast<int>(bounds.size()) < count; bound *= factor) {
    bounds.push_back(bound);
  }
  return bounds;
}

namespace {

prometheus::MetricFamily MakeFamily(std::string name, std::string help,
                                    prometheus::MetricType type) {
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return family;
}

}  // namespace

prometheus::MetricFamily GaugeFamily(std::string name, std::string help) {
  return MakeFamily(std::move(name), std::move(help), prometheus::MetricType::Gauge);
}

prometheus::MetricFamily CounterFamily(std::string name, std::string help) {
  return MakeFamily(std::move(name), std::move(help), prometheus::MetricType::Counter);
}

void AddCounter(prometheus::MetricFamily& family,
                std::vector<prometheus::ClientMetric::Label> labels, double value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  metric.counter.value = value;
  family.metric.push_back(std::move(metric));
}

void AddGauge(prometheus::MetricFamily& family, std::vector<prometheus::ClientMetric::Label> labels,
              double value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  family.metric.push_back(std::move(metric));
}

}  // namespace gemmd
