// Answers GET /metrics. Its trouble is never the service's: a failed start is a Status.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <prometheus/collectable.h>

#include "kernels/core/status.h"

namespace prometheus {
class Exposer;
}

namespace gemmd {

class MetricsServer {
 public:
  // `address` is HOST:PORT ("127.0.0.1:9464"), never IPv6; port 0 takes a free one. Each scrape
  // collects from every source. INVALID_ARGUMENT when the address is no HOST:PORT; UNAVAILABLE
  // naming it when it cannot be listened on.
  static StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, std::vector<std::shared_ptr<prometheus::Collectable>> sources);
  // Ends scrapes that run; takes up to 2 s, the HTTP server's own polling period.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  int port() const { return port_; }  // as bound
  std::string address() const { return host_ + ":" + std::to_string(port_); }

 private:
  MetricsServer(std::unique_ptr<prometheus::Exposer> exposer, std::string host, int port,
                std::vector<std::shared_ptr<prometheus::Collectable>> sources);

  const std::string host_;
  const int port_;
  const std::vector<std::shared_ptr<prometheus::Collectable>> sources_;
  const std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace gemmd
