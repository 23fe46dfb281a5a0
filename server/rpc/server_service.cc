#include "server/rpc/server_service.h"

#include <algorithm>
#include <utility>

#include "kernels/plan/kernel_table.h"
#include "kernels/plan/tuned_planner.h"
#include "server/rpc/codec.h"
#include "server/rpc/refuse.h"
#include "server/rpc/tuning_calls.h"

namespace gemmd {
namespace {

constexpr DType kTypes[] = {DType::kF16,    DType::kBF16,   DType::kF32, DType::kF64,
                            DType::kF8E4M3, DType::kF8E5M2, DType::kI8,  DType::kI32};
constexpr ComputeMode kModes[] = {ComputeMode::kIeee, ComputeMode::kTf32, ComputeMode::kTf32x3};

DType Accumulator(DType type_a) {
  if (type_a == DType::kF64) return DType::kF64;
  return type_a == DType::kI8 ? DType::kI32 : DType::kF32;
}

// A small problem of each combination of types and mode that v1 allows and the device supports.
std::vector<GemmProblem> SupportedTypes(const DeviceTraits& traits) {
  std::vector<GemmProblem> out;
  for (const DType a : kTypes) {
    for (const DType b : kTypes) {
      for (const DType d : kTypes) {
        for (const ComputeMode mode : kModes) {
          GemmProblem problem;
          problem.m = problem.n = problem.k = 1;
          problem.type_a = a;
          problem.type_b = b;
          problem.type_d = d;
          problem.mode = mode;
          problem = WithPackedLayouts(problem);
          if (ValidateProblem(problem).ok() && CheckSupported(problem, traits).ok()) {
            out.push_back(problem);
          }
        }
      }
    }
  }
  return out;
}

google::protobuf::Timestamp ToTimestamp(std::chrono::system_clock::time_point time) {
  const google::protobuf::Duration since =
      ToProto(std::chrono::duration_cast<Nanoseconds>(time.time_since_epoch()));
  google::protobuf::Timestamp out;
  out.set_seconds(since.seconds());
  out.set_nanos(since.nanos());
  return out;
}

void FillDevice(const Backend& backend, v1::Device* out) {
  const DeviceTraits& traits = backend.traits();
  out->set_ordinal(traits.ordinal);
  out->set_name(traits.name);
  out->set_uuid(traits.uuid);
  out->set_compute_capability(traits.compute_capability);
  out->set_sm_count(traits.sm_count);
  out->set_memory_bytes(traits.memory_bytes);
  out->set_driver_version(traits.driver_version);
  out->set_lanes(backend.usage().lanes);
}

}  // namespace

ServerServiceImpl::ServerServiceImpl(RpcFacts facts, const Engine* engine,
                                     std::vector<const Backend*> backends,
                                     const TotalsObserver* totals, const RpcTuning& tuning)
    : facts_(std::move(facts)),
      engine_(engine),
      backends_(std::move(backends)),
      totals_(totals),
      tuning_(tuning),
      traits_(backends_.front()->traits()),
      types_(SupportedTypes(traits_)) {}

grpc::ServerUnaryReactor* ServerServiceImpl::GetServerInfo(grpc::CallbackServerContext* context,
                                                           const v1::GetServerInfoRequest*,
                                                           v1::ServerInfo* response) {
  response->set_version(facts_.version);
  response->set_build(facts_.build);
  response->set_backend(std::string(backends_.front()->name()));
  response->set_backend_reason(facts_.backend_reason);
  for (const Backend* backend : backends_) FillDevice(*backend, response->add_devices());
  v1::Limits* limits = response->mutable_limits();
  limits->set_max_message_bytes(facts_.max_message_bytes);
  limits->set_max_queued_requests(facts_.max_queued_requests);
  limits->set_max_queued_bytes(facts_.max_queued_bytes);
  limits->set_max_extent(kMaxExtent);
  for (const GemmProblem& problem : types_) {
    v1::TypeSupport* types = response->add_types();
    types->set_type_a(ToProto(problem.type_a));
    types->set_type_b(ToProto(problem.type_b));
    types->set_type_d(ToProto(problem.type_d));
    types->set_compute_mode(ToProto(problem.mode));
    types->set_accumulate(ToProto(Accumulator(problem.type_a)));
  }
  *response->mutable_started() = ToTimestamp(facts_.started);
  response->set_draining(engine_->draining());
  return FinishUnary(context, OkStatus());
}

grpc::ServerUnaryReactor* ServerServiceImpl::ListKernels(grpc::CallbackServerContext* context,
                                                         const v1::ListKernelsRequest*,
                                                         v1::ListKernelsResponse* response) {
  for (const KernelRow& row : kKernelTable) {
    const KernelConfig& config = row.config;
    v1::Kernel* kernel = response->add_kernels();
    kernel->set_name(std::string(row.name));
    kernel->set_block_m(config.block_m);
    kernel->set_block_n(config.block_n);
    kernel->set_block_k(config.block_k);
    kernel->set_threads(Threads(config));
    kernel->set_max_stages(config.max_stages);
    kernel->set_stage_bytes(StageBytes(config));
    const bool usable = std::ranges::any_of(
        types_, [&](const GemmProblem& problem) { return TakesTypes(config, problem, traits_); });
    kernel->set_usable(usable);
  }
  return FinishUnary(context, OkStatus());
}

grpc::ServerUnaryReactor* ServerServiceImpl::ExplainPlan(grpc::CallbackServerContext* context,
                                                         const v1::ExplainPlanRequest* request,
                                                         v1::ExplainPlanResponse* response) {
  const StatusOr<DecodedExplain> decoded = DecodeExplain(*request);
  if (!decoded.ok()) return FinishUnary(context, decoded.status());
  const StatusOr<Plan> plan = engine_->Explain(decoded->problem, decoded->constraints);
  if (!plan.ok()) return FinishUnary(context, plan.status());
  *response->mutable_plan() = ToProto(*plan);
  for (const Plan& candidate : engine_->planner(0).Candidates(decoded->problem)) {
    if (response->candidates_size() == decoded->max_candidates) break;
    *response->add_candidates() = ToProto(candidate);
  }
  return FinishUnary(context, OkStatus());
}

grpc::ServerUnaryReactor* ServerServiceImpl::GetStatistics(grpc::CallbackServerContext* context,
                                                           const v1::GetStatisticsRequest*,
                                                           v1::Statistics* response) {
  const EngineTotals totals = totals_->Snapshot();
  const auto uptime = std::chrono::system_clock::now() - facts_.started;
  *response->mutable_uptime() = ToProto(std::chrono::duration_cast<Nanoseconds>(uptime));
  response->set_requests_admitted(totals.admitted);
  response->set_requests_completed(totals.completed);
  response->set_requests_failed(totals.failed);
  response->set_requests_rejected(totals.rejected);
  response->set_queued(engine_->queued_requests());
  response->set_queued_bytes(engine_->queued_bytes());
  response->set_running(engine_->running_requests());
  response->set_flops(totals.flops);
  *response->mutable_kernel_time() = ToProto(totals.kernel_time);
  for (const KernelTotals& kernel : totals.kernels) {
    v1::KernelStatistics* out = response->add_kernels();
    out->set_kernel(std::string(kKernelTable[kernel.row].name));
    out->set_stages(kernel.stages);
    out->set_launches(kernel.launches);
    *out->mutable_kernel_time() = ToProto(kernel.kernel_time);
    if (kernel.stalls.measured) *out->mutable_stalls() = ToProto(kernel.stalls);
  }
  EncodeStalls(tuning_.sampler->totals(), response);
  return FinishUnary(context, OkStatus());
}

grpc::ServerWriteReactor<v1::TuneProgress>* ServerServiceImpl::Tune(
    grpc::CallbackServerContext*, const v1::TuneRequest* request) {
  return TuneCall(tuning_, &open_runs_, *request);
}

grpc::ServerWriteReactor<v1::StudyPoint>* ServerServiceImpl::Study(
    grpc::CallbackServerContext* context, const v1::StudyRequest* request) {
  return StudyCall(tuning_, &open_runs_, context, *request);
}

grpc::ServerUnaryReactor* ServerServiceImpl::Profile(grpc::CallbackServerContext* context,
                                                     const v1::ProfileRequest* request,
                                                     v1::ProfileResponse* response) {
  return ProfileCall(tuning_, &open_runs_, context, *request, response);
}

}  // namespace gemmd
