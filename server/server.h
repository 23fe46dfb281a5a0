// The whole server in one object: backends, engine, metrics and gRPC, started and ended in order.
#pragma once

#include <memory>
#include <string>

#include <spdlog/logger.h>

#include "kernels/backend_factory.h"
#include "kernels/core/status.h"
#include "server/config.h"
#include "server/engine/engine.h"

namespace gemmd {

struct BuildFacts {
  std::string version;
  std::string revision;  // of the source
  std::string type;      // "Release"

  std::string ToString() const { return version + " (" + revision + " " + type + ")"; }
};
BuildFacts ThisBuild();

class Server {  // Thread-safe, but for Shutdown and the destructor.
 public:
  // Serves when it returns. FAILED_PRECONDITION naming the address when one cannot be
  // bound, or the tuning file when another process has it.
  static StatusOr<std::unique_ptr<Server>> Start(const Config& config, BackendSet backends,
                                                 const BuildFacts& build,
                                                 std::shared_ptr<spdlog::logger> log);
  // As Shutdown. Waits for what runs on a device.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::string grpc_address() const;     // as bound: "127.0.0.1:50051"
  std::string metrics_address() const;  // likewise; empty: off

  // False once a device is lost. The process should then end: it never recovers.
  bool healthy() const;

  // Health turns NOT_SERVING first, then new calls get UNAVAILABLE; admitted work goes on, but for
  // tuning and studies, which end soon.
  void StartDrain();
  // Waits until all admitted work has ended, and what is tuned; false when `deadline` passed first.
  bool WaitProducts(SteadyClock::time_point deadline);
  // Likewise, and until each caller has its reply.
  bool WaitIdle(SteadyClock::time_point deadline);
  std::string tuning() const;   // "a tune of 12 problems"; empty: none waits or runs
  int open_calls() const;       // admitted, and their reply has not left
  int64_t reply_bytes() const;  // of results of open calls
  // Fails what still waits for a lane with UNAVAILABLE.
  void CutQueue();
  // Closes the listeners and every call that is still open. Call it idle.
  void Shutdown();

  const Engine& engine() const;

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

// "grpc HOST:PORT\nmetrics HOST:PORT\n", the second line only when metrics are on.
std::string Addresses(const Server& server);

}  // namespace gemmd
