// gemmd.v1.GemmService over the engine: decodes, submits, replies. Holds no policy.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <spdlog/logger.h>

#include "gemmd/v1/gemm.grpc.pb.h"
#include "server/engine/call_observer.h"
#include "server/engine/engine.h"
#include "server/engine/reply_budget.h"
#include "server/rpc/open_calls.h"

namespace gemmd {

// Gemm takes and gives bytes, so that the service itself parses them: it says what is wrong with
// those that are no message, and frees operands before the reply has left.
using GemmServiceBase = v1::GemmService::WithRawCallbackMethod_Gemm<
    v1::GemmService::WithCallbackMethod_GemmStream<v1::GemmService::Service>>;

class GemmServiceImpl final : public GemmServiceBase {  // Thread-safe.
 public:
  // Results whose reply would have more than `max_message_bytes` are refused. `observer` hears of
  // the requests that are refused here, the engine has its own; `calls` hears of products that
  // their caller gave up. All outlive the service; the service outlives its calls.
  GemmServiceImpl(Engine* engine, ReplyBudget* replies, EngineObserver* observer,
                  CallObserver* calls, int64_t max_message_bytes, spdlog::logger* log);

  grpc::ServerUnaryReactor* Gemm(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<v1::GemmStreamRequest, v1::GemmStreamResponse>* GemmStream(
      grpc::CallbackServerContext* context) override;

  // Waits until every call that was not refused has ended and its reply has left; false when
  // `deadline` passed first.
  bool WaitIdle(SteadyClock::time_point deadline) { return open_calls_.WaitIdle(deadline); }
  int open_calls() const { return open_calls_.count(); }

 private:
  class Call;

  std::string NewRequestId();

  Engine* const engine_;
  ReplyBudget* const replies_;
  EngineObserver* const observer_;
  CallObserver* const call_observer_;
  const int64_t max_message_bytes_;
  spdlog::logger* const log_;
  const std::string id_prefix_;       // tells this process's ids from another's
  std::atomic<uint64_t> next_id_{1};  // relaxed: only has to be unique
  OpenCalls open_calls_;
};

}  // namespace gemmd
