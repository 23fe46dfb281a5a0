#include "server/server.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <prometheus/registry.h>
#include <spdlog/spdlog.h>

#include "kernels/core/text.h"
#include "server/engine/observer.h"
#include "server/engine/reply_budget.h"
#include "server/engine/totals.h"
#include "server/metrics/call_metrics.h"
#include "server/metrics/gpu_collector.h"
#include "server/metrics/metrics_server.h"
#include "server/metrics/pool_collector.h"
#include "server/metrics/prometheus_observer.h"
#include "server/metrics/stall_collector.h"
#include "server/metrics/tuning_metrics.h"
#include "server/rpc/rpc_server.h"
#include "server/sampling/stall_sampler.h"
#include "server/tuning/background_tuner.h"
#include "server/tuning/traffic.h"
#include "server/tuning/tuner.h"
#include "server/tuning/tuning_file.h"

namespace gemmd {
namespace {

// What watchers of health have to read that the server stops, before their streams are cut.
constexpr std::chrono::milliseconds kLastWords{250};

std::vector<Backend*> Pointers(const BackendSet& set) {
  std::vector<Backend*> out;
  for (const auto& backend : set.backends) out.push_back(backend.get());
  return out;
}

void LogBackends(const BackendSet& set, spdlog::logger& log) {
  log.info("backend {} ({})", set.backends.front()->name(), set.reason);
  for (const auto& backend : set.backends) {
    const DeviceTraits& traits = backend->traits();
    log.info("device {} \"{}\": {}", traits.ordinal, traits.name,
             Count(backend->usage().lanes, "lane"));
  }
}

// Equal devices share a planner: the first of them is timed for all.
std::vector<TuningDevice> TuningDevices(const std::vector<Backend*>& backends, Engine& engine) {
  std::vector<TuningDevice> devices;
  for (size_t i = 0; i < backends.size(); ++i) {
    TunedPlanner* const planner = &engine.planner(static_cast<int>(i));
    const bool known = std::any_of(devices.begin(), devices.end(), [planner](const auto& device) {
      return device.planner == planner;
    });
    if (!known) devices.push_back({.backend = backends[i], .planner = planner});
  }
  return devices;
}

// Whether the planners now have what the file holds. Nothing in a file keeps a server from
// starting.
bool LoadTuning(TuningFile& file, const std::vector<TunedPlanner*>& planners, spdlog::logger& log) {
  const StatusOr<LoadedTuning> loaded = file.Load(planners);
  if (loaded.status().code() == StatusCode::kNotFound) {
    log.info("tuning-file={} is not there yet", file.path());
    return false;
  }
  if (!loaded.ok()) {
    log.warn("{}; plans are made by the model alone", loaded.status().message());
    return false;
  }
  if (loaded->calibrated > 0) {
    log.info("tuning-file={}: the calibration of {}", file.path(),
             Count(loaded->calibrated, "device"));
  }
  if (!loaded->device.ok()) {
    log.warn("{}; the rest of the file holds", loaded->device.message());
  }
  if (!loaded->calibration.ok()) {
    log.warn("tuning-file={}: {}; the model has the calibration that it comes with", file.path(),
             loaded->calibration.message());
  }
  const std::string known = Count(loaded->problems, "problem");
  if (loaded->skipped > 0) {
    log.warn("tuning-file={}: {}, and {} left out that this server cannot run", file.path(), known,
             loaded->skipped);
  } else {
    log.info("tuning-file={}: {}", file.path(), known);
  }
  if (loaded->dropped > 0) {
    log.warn(
        "tuning-file={} exceeds the limit of {} problems of a device by {}; the first of it are "
        "left out",
        file.path(), TuningTable::kMaxEntries, loaded->dropped);
  }
  return true;
}

// A start without the lock is better than none: nothing may be writable here.
Status LockTuning(TuningFile& file, spdlog::logger& log) {
  Status status = file.Lock();
  if (status.code() != StatusCode::kUnavailable) return status;
  log.warn("{}; nothing keeps another server from using it too", status.message());
  return OkStatus();
}

// Says when what was learnt cannot be saved: once for each reason, and again at the end of the
// server, with which it is lost.
class SaveLog {  // Thread-safe.
 public:
  void Ended(const Status& status, spdlog::logger& log) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    log_ = &log;
    failure_ = status.ok() ? "" : status.message();
    if (failure_.empty() || !told_.insert(failure_).second) return;
    log.warn("what was measured is in use and not saved: {}", failure_);
    if (told_.size() > kMaxTold) told_.clear();
  }
  void Last() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    if (failure_.empty()) return;
    log_->warn("what was measured since the last save is lost: {}", failure_);
    failure_.clear();
  }

 private:
  static constexpr size_t kMaxTold = 100;

  Mutex mu_;
  spdlog::logger* log_ GUARDED_BY(mu_) = nullptr;
  std::string failure_ GUARDED_BY(mu_);  // of the last save; empty: it succeeded
  std::set<std::string> told_ GUARDED_BY(mu_);
};

std::vector<GpuDevice> Gpus(const std::vector<const Backend*>& backends) {
  std::vector<GpuDevice> gpus;
  for (const Backend* backend : backends) {
    const DeviceTraits& traits = backend->traits();
    if (traits.kind == DeviceKind::kCuda) gpus.push_back({traits.ordinal, traits.uuid});
  }
  return gpus;
}

std::unique_ptr<StallSampler> MakeSampler(const Config& config, std::vector<Backend*> backends,
                                          spdlog::logger& log) {
  // Elsewhere there is nothing to sample, and nothing to warn of.
  const bool on_gpus = backends.front()->traits().kind == DeviceKind::kCuda;
  return std::make_unique<StallSampler>(
      std::move(backends), SamplingOptions{.on = on_gpus && config.backend.pc_sampling_percent > 0},
      [&log](const Backend& backend, const Status& status) {
        log.warn("device {}: its kernels' stall reasons are not sampled: {}",
                 backend.traits().ordinal, status.message());
      });
}

RpcOptions MakeRpcOptions(const Config& config, const BuildFacts& build,
                          const std::string& backend_reason) {
  RpcOptions out;
  out.host = config.listen.host;
  out.port = config.listen.port;
  out.facts.version = build.version;
  out.facts.build = build.revision + " " + build.type;
  out.facts.backend_reason = backend_reason;
  out.facts.max_message_bytes = config.max_message_bytes;
  out.facts.max_queued_requests = config.max_queued_requests;
  out.facts.max_queued_bytes = config.max_queued_bytes;
  return out;
}

}  // namespace

// In the order in which they are made; destroyed the other way round, so that calls end before the
// engine and the tuner that they use, and those before the devices.
struct Server::Parts {
  explicit Parts(int64_t max_reply_bytes) : replies(max_reply_bytes) {}

  std::shared_ptr<spdlog::logger> log;
  BackendSet backends;
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  PrometheusObserver prometheus{*registry};
  CallMetrics calls{*registry};
  TuningMetrics tuning{*registry};
  TotalsObserver totals;
  Traffic traffic;
  ObserverList observers{{&prometheus, &totals, &traffic}};
  ReplyBudget replies;
  SaveLog saves;
  std::unique_ptr<TuningFile> tuning_file;  // null: none
  std::unique_ptr<Engine> engine;
  std::unique_ptr<StallSampler> sampler;
  std::unique_ptr<Tuner> tuner;
  std::unique_ptr<BackgroundTuner> background;  // null: off
  std::unique_ptr<MetricsServer> metrics;       // null: off
  std::unique_ptr<RpcServer> rpc;
};

Server::Server(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Server::~Server() = default;

StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config, BackendSet backends,
                                                const BuildFacts& build,
                                                std::shared_ptr<spdlog::logger> log) {
  auto parts = std::make_unique<Parts>(config.max_reply_bytes);
  parts->log = std::move(log);
  parts->backends = std::move(backends);
  LogBackends(parts->backends, *parts->log);

  const std::vector<Backend*> pointers = Pointers(parts->backends);
  const std::vector<const Backend*> readers(pointers.begin(), pointers.end());
  EngineOptions options;
  options.max_queued_requests = config.max_queued_requests;
  options.max_queued_bytes = config.max_queued_bytes;
  parts->engine = std::make_unique<Engine>(options, pointers, &parts->observers);

  parts->sampler = MakeSampler(config, pointers, *parts->log);

  std::vector<TuningDevice> devices = TuningDevices(pointers, *parts->engine);
  std::vector<TunedPlanner*> planners;
  for (const TuningDevice& device : devices) planners.push_back(device.planner);
  bool tuning_file_loaded = false;
  Tuner::Save save;
  if (!config.tuning_file.empty()) {
    parts->tuning_file = std::make_unique<TuningFile>(config.tuning_file,
                                                      build.version + " (" + build.revision + ")");
    RETURN_IF_ERROR(LockTuning(*parts->tuning_file, *parts->log));
    tuning_file_loaded = LoadTuning(*parts->tuning_file, planners, *parts->log);
    save = [parts = parts.get(), planners] {
      Status status = parts->tuning_file->Save({planners.begin(), planners.end()});
      parts->saves.Ended(status, *parts->log);
      parts->tuning.Saved(status.ok());
      return status;
    };
  }
  parts->tuner = std::make_unique<Tuner>(std::move(devices), std::move(save), &parts->tuning,
                                         config.tuning_file, parts->sampler.get());
  if (config.background_tuning) {
    BackgroundOptions background;
    background.share = config.background_share_percent / 100.0;
    parts->background =
        std::make_unique<BackgroundTuner>(background, parts->tuner.get(), &parts->traffic);
    parts->log->info("tuning in the background, in at most {} % of wall time",
                     config.background_share_percent);
  }

  // An address that is taken is a mistake in the configuration, better told than served without.
  if (config.metrics_enabled) {
    ServerFacts facts;
    facts.version = build.version;
    facts.revision = build.revision;
    facts.tuning_file_loaded = tuning_file_loaded;
    std::vector<std::shared_ptr<prometheus::Collectable>> sources = {
        parts->registry,
        std::make_shared<PoolCollector>(*parts->engine, parts->replies, readers, facts),
        std::make_shared<StallCollector>(*parts->sampler)};
    std::vector<GpuDevice> gpus = Gpus(readers);
    if (config.gpu_gauges && !gpus.empty()) {
      sources.push_back(std::make_shared<GpuCollector>(std::move(gpus), GpuOptions{}, parts->log));
    }
    ASSIGN_OR_RETURN(parts->metrics,
                     MetricsServer::Start(config.metrics.ToString(), std::move(sources)));
  }
  ASSIGN_OR_RETURN(
      parts->rpc,
      RpcServer::Start(MakeRpcOptions(config, build, parts->backends.reason), parts->engine.get(),
                       &parts->replies, {.products = &parts->observers, .calls = &parts->calls},
                       readers, &parts->totals,
                       {.tuner = parts->tuner.get(),
                        .traffic = &parts->traffic,
                        .sampler = parts->sampler.get(),
                        .reader_timeout = config.reader_timeout},
                       parts->log.get()));
  auto server = std::unique_ptr<Server>(new Server(std::move(parts)));
  server->parts_->log->info("serving gRPC on {}, metrics on {}", server->grpc_address(),
                            config.metrics_enabled ? server->metrics_address() : "no address");
  return server;
}

std::string Server::grpc_address() const { return parts_->rpc->address(); }
std::string Server::metrics_address() const {
  return parts_->metrics == nullptr ? "" : parts_->metrics->address();
}
bool Server::healthy() const { return parts_->engine->healthy(); }
const Engine& Server::engine() const { return *parts_->engine; }

void Server::StartDrain() {
  parts_->rpc->StopServing();
  parts_->engine->StartDrain();
  parts_->tuner->StartDrain();
}

bool Server::WaitProducts(SteadyClock::time_point deadline) {
  return parts_->engine->WaitIdle(deadline) && parts_->tuner->WaitIdle(deadline);
}

bool Server::WaitIdle(SteadyClock::time_point deadline) {
  return WaitProducts(deadline) && parts_->rpc->WaitIdle(deadline);
}

std::string Server::tuning() const { return parts_->tuner->running(); }
int Server::open_calls() const { return parts_->rpc->open_gemm_calls(); }
int64_t Server::reply_bytes() const { return parts_->replies.bytes(); }

void Server::CutQueue() {
  parts_->engine->CutQueue();
  parts_->saves.Last();
}

void Server::Shutdown() {
  parts_->rpc->Shutdown(kLastWords);
  parts_->saves.Last();
}

std::string Addresses(const Server& server) {
  std::string text = "grpc " + server.grpc_address() + "\n";
  if (!server.metrics_address().empty()) text += "metrics " + server.metrics_address() + "\n";
  return text;
}

}  // namespace gemmd
