// What the metrics here share: bounds of histograms, series that are made at a scrape, and text
// that is safe as a label.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

namespace gemmd {

// Label values go out as UTF-8 and the names of devices come from drivers: whatever is not
// printable ASCII becomes '?'. (The serializer escapes quotes, backslashes and newlines itself, but
// checks no encoding.)
std::string LabelText(std::string_view text);

// first, first * factor, ... : `count` of them.
std::vector<double> GeometricBounds(double first, double factor, int count);

// A family without series, and one series for it.
prometheus::MetricFamily GaugeFamily(std::string name, std::string help);
void AddGauge(prometheus::MetricFamily& family, std::vector<prometheus::ClientMetric::Label> labels,
              double value);
prometheus::MetricFamily CounterFamily(std::string name, std::string help);
void AddCounter(prometheus::MetricFamily& family,
                std::vector<prometheus::ClientMetric::Label> labels, double value);

}  // namespace gemmd
