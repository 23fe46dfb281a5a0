// gemmd.v1.ServerService: what the server is, what it would do, and what it has done; tuning and
// studies. Profile is announced and answers UNIMPLEMENTED.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "gemmd/v1/server.grpc.pb.h"
#include "kernels/backend.h"
#include "kernels/plan/planner.h"
#include "server/engine/engine.h"
#include "server/engine/totals.h"
#include "server/rpc/open_calls.h"
#include "server/rpc/tuning_calls.h"

namespace gemmd {

// What does not change while a server runs.
struct RpcFacts {
  std::string version;
  std::string build;
  std::string backend_reason;
  int64_t max_message_bytes = 0;
  int max_queued_requests = 0;
  int64_t max_queued_bytes = 0;
  std::chrono::system_clock::time_point started = std::chrono::system_clock::now();
};

class ServerServiceImpl final : public v1::ServerService::CallbackService {  // Thread-safe.
 public:
  // All outlive the service. At least one backend; all of one kind.
  ServerServiceImpl(RpcFacts facts, const Engine* engine, std::vector<const Backend*> backends,
                    const TotalsObserver* totals, const RpcTuning& tuning);

  // Runs of Tune, Study and Profile whose caller has not heard of their end.
  OpenCalls& open_runs() { return open_runs_; }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;
  grpc::ServerUnaryReactor* ListKernels(grpc::CallbackServerContext* context,
                                        const v1::ListKernelsRequest* request,
                                        v1::ListKernelsResponse* response) override;
  grpc::ServerUnaryReactor* ExplainPlan(grpc::CallbackServerContext* context,
                                        const v1::ExplainPlanRequest* request,
                                        v1::ExplainPlanResponse* response) override;
  grpc::ServerUnaryReactor* GetStatistics(grpc::CallbackServerContext* context,
                                          const v1::GetStatisticsRequest* request,
                                          v1::Statistics* response) override;
  grpc::ServerWriteReactor<v1::TuneProgress>* Tune(grpc::CallbackServerContext* context,
                                                   const v1::TuneRequest* request) override;
  grpc::ServerWriteReactor<v1::StudyPoint>* Study(grpc::CallbackServerContext* context,
                                                  const v1::StudyRequest* request) override;
  grpc::ServerUnaryReactor* Profile(grpc::CallbackServerContext* context,
                                    const v1::ProfileRequest* request,
                                    v1::ProfileResponse* response) override;

 private:
  const RpcFacts facts_;
  const Engine* const engine_;
  const std::vector<const Backend*> backends_;
  const TotalsObserver* const totals_;
  const RpcTuning tuning_;
  const DeviceTraits traits_;             // of the first device; the others are of its kind
  const std::vector<GemmProblem> types_;  // a small problem of each combination that runs here
  OpenCalls open_runs_;
};

}  // namespace gemmd
