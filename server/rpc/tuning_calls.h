// ServerService.Tune, Study and Profile over the tuner: decodes, starts a run, and sends what it
// reports.
#pragma once

#include <chrono>

#include <grpcpp/support/server_callback.h>

#include "gemmd/v1/server.pb.h"
#include "server/rpc/open_calls.h"
#include "server/tuning/traffic.h"
#include "server/tuning/tuner.h"

namespace gemmd {

// All outlive the calls.
struct RpcTuning {
  Tuner* tuner = nullptr;
  const Traffic* traffic = nullptr;
  const StallSampler* sampler = nullptr;
  std::chrono::milliseconds reader_timeout{0};
};

// The reactors delete themselves. A call counts in `open` while its run, or what that reported, is
// under way. A caller that reads slowly misses steps of Tune but never the last; it holds up a
// Study, which loses no point, and is cancelled when its caller takes none for `reader_timeout`: it
// would keep every other run out.
grpc::ServerWriteReactor<v1::TuneProgress>* TuneCall(const RpcTuning& tuning, OpenCalls* open,
                                                     const v1::TuneRequest& request);
grpc::ServerWriteReactor<v1::StudyPoint>* StudyCall(const RpcTuning& tuning, OpenCalls* open,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::StudyRequest& request);
grpc::ServerUnaryReactor* ProfileCall(const RpcTuning& tuning, OpenCalls* open,
                                      grpc::CallbackServerContext* context,
                                      const v1::ProfileRequest& request,
                                      v1::ProfileResponse* response);

}  // namespace gemmd
