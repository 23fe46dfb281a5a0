// The gRPC server: services, health, reflection, limits, and its end.
//
// Health (grpc.health.v1, Check and Watch) knows the names "" and "gemmd.v1.GemmService". Calls
// must go over a trusted network: there is no transport security here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <spdlog/logger.h>

#include "kernels/backend.h"
#include "server/engine/call_observer.h"
#include "server/engine/engine.h"
#include "server/engine/reply_budget.h"
#include "server/engine/totals.h"
#include "server/rpc/server_service.h"

namespace gemmd {

struct RpcOptions {
  std::string host;  // "127.0.0.1", "[::1]", "localhost"
  int port = 0;      // 0: a free one
  RpcFacts facts;    // max_message_bytes bounds the transport's messages too
  // Connections get descriptors below it; 0: all that the process may have but a few.
  int fd_limit = 0;
};

struct RpcObservers {
  EngineObserver* products = nullptr;  // hears of those that the codec refuses
  CallObserver* calls = nullptr;
};

class RpcServer {  // Thread-safe, but for Shutdown and the destructor.
 public:
  // Serves when it returns, and health says SERVING. FAILED_PRECONDITION naming the address when
  // it cannot be bound. What the pointers name outlives the server.
  static StatusOr<std::unique_ptr<RpcServer>> Start(RpcOptions options, Engine* engine,
                                                    ReplyBudget* replies,
                                                    const RpcObservers& observers,
                                                    std::vector<const Backend*> backends,
                                                    const TotalsObserver* totals,
                                                    const RpcTuning& tuning, spdlog::logger* log);
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  int port() const;
  std::string address() const;  // "127.0.0.1:50051", with the port that was bound

  // Health turns NOT_SERVING for every name, and stays so.
  void StopServing();
  // Waits until no call of Gemm, Tune, Study or Profile is open; false when `deadline` passed
  // first.
  bool WaitIdle(SteadyClock::time_point deadline);
  int open_gemm_calls() const;
  // Refuses connections at once, and ends those that are open: the ones whose callers are still
  // there, `last_words` later. A call that arrives meanwhile is answered, and one that is cut sees
  // its connection end. Returns when all calls have ended, so the engine must be idle or able to
  // finish.
  void Shutdown(std::chrono::milliseconds last_words);

 private:
  struct Parts;
  explicit RpcServer(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace gemmd
