#include "server/metrics/metrics_server.h"

#include <charconv>
#include <exception>
#include <optional>
#include <utility>

#include <prometheus/exposer.h>

namespace gemmd {
namespace {

// A connection that says nothing keeps a thread for as long as the time-out.
constexpr const char* kThreads = "8";
constexpr const char* kTimeoutMs = "1000";

struct HostPort {
  std::string host;
  int port = 0;
};

// The exposer takes a list of addresses with option letters; one plain address is all we pass on.
std::optional<HostPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort split{address.substr(0, colon), 0};
  if (split.host.find_first_of(", \t\r\n+") != std::string::npos) return std::nullopt;
  if (split.host.find(':') != std::string::npos) return std::nullopt;
  const char* const end = address.data() + address.size();
  const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, split.port);
  if (error != std::errc() || rest != end || split.port < 0 || split.port > 65535) {
    return std::nullopt;
  }
  return split;
}

}  // namespace

StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, std::vector<std::shared_ptr<prometheus::Collectable>> sources) {
  std::optional<HostPort> split = SplitAddress(address);
  if (!split) {
    return InvalidArgument("metrics", "metrics=" + address + " is not HOST:PORT, port 0 to 65535");
  }
  std::unique_ptr<prometheus::Exposer> exposer;
  int port = 0;
  try {
    exposer = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
        "listening_ports", address, "num_threads", kThreads, "request_timeout_ms", kTimeoutMs});
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (!ports.empty()) port = ports.front();
    for (const auto& source : sources) exposer->RegisterCollectable(source);
  } catch (const std::exception& error) {
    return Unavailable("metrics=" + address + " cannot be listened on: " + error.what());
  }
  return std::unique_ptr<MetricsServer>(
      new MetricsServer(std::move(exposer), std::move(split->host), port, std::move(sources)));
}

MetricsServer::MetricsServer(std::unique_ptr<prometheus::Exposer> exposer, std::string host,
                             int port,
                             std::vector<std::shared_ptr<prometheus::Collectable>> sources)
    : host_(std::move(host)),
      port_(port),
      sources_(std::move(sources)),
      exposer_(std::move(exposer)) {}

MetricsServer::~MetricsServer() = default;

}  // namespace gemmd
