// Takes TCP connections for the gRPC server. gRPC's own listener never accepts again once the
// process has run out of file descriptors, and tells its callers CANCELLED when it ends; this one
// turns connections away while descriptors are short, and can end all connections first.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <spdlog/logger.h>

#include "kernels/core/mutex.h"
#include "kernels/core/status.h"

namespace gemmd {

class Listener {  // Thread-safe, but for Start, Stop and the destructor.
 public:
  // A connection's descriptor, non-blocking, which the callee now owns. On the listener's thread.
  using Take = std::function<void(int fd)>;

  // Binds every address that `host` has ("127.0.0.1", "[::1]", "localhost"); port 0 takes a free
  // one. FAILED_PRECONDITION with host, port and reason when it cannot. `log` outlives it.
  static StatusOr<std::unique_ptr<Listener>> Bind(const std::string& host, int port,
                                                  spdlog::logger* log);
  ~Listener();  // as Stop
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }

  // Once. A connection whose descriptor would not be below `fd_limit` is closed at once: the
  // process keeps what is above for its own files.
  void Start(int fd_limit, Take take);
  // From now on connections are refused. `take` is not called any more when it returns.
  void Stop();
  // Ends every connection that was taken: what has been written arrives, nothing more goes out. The
  // number of connections.
  int EndConnections();
  int open_connections() const;

 private:
  Listener(std::vector<int> sockets, int port, spdlog::logger* log);

  void Loop();
  void AcceptAll(int socket);
  bool Shed(int socket);
  void NoteShed();
  std::vector<int> Connections() const;

  std::vector<int> sockets_;  // confined to the thread once started
  const int port_;
  spdlog::logger* const log_;
  int wake_[2] = {-1, -1};  // a pipe; closing its far end ends the thread
  int spare_ = -1;          // a descriptor to spend where there is no other
  int fd_limit_ = 0;
  Take take_;
  bool shedding_ = false;  // confined to the thread
  std::thread thread_;

  mutable Mutex mu_;
  std::set<int> taken_ GUARDED_BY(mu_);  // descriptors; some may be closed, or another's by now
};

}  // namespace gemmd
