// gemmctl info, kernels, stats: what the server is and has done.
#include <cstdio>

#include "client/gemmctl.h"
#include "client/stall_report.h"

namespace gemmd::ctl {
namespace {

std::string Str(int64_t value) { return std::to_string(value); }

std::string TypesText(const ClientTypes& types) {
  std::string text(Name(types.a));
  if (types.b != types.a) text += " x " + std::string(Name(types.b));
  text += " -> " + std::string(Name(types.d));
  if (types.mode != ComputeMode::kIeee) text += " (" + std::string(Name(types.mode)) + ")";
  return text;
}

Json ToJson(const ClientServerInfo& info) {
  Json devices = Json::Array();
  for (const ClientDevice& d : info.devices) {
    devices.Add(Json::Object()
                    .Set("ordinal", d.ordinal)
                    .Set("name", d.name)
                    .Set("uuid", d.uuid)
                    .Set("compute_capability", d.compute_capability)
                    .Set("sm_count", d.sm_count)
                    .Set("memory_bytes", d.memory_bytes)
                    .Set("driver_version", d.driver_version)
                    .Set("lanes", d.lanes));
  }
  Json types = Json::Array();
  for (const ClientTypes& t : info.types) {
    types.Add(Json::Object()
                  .Set("a", Name(t.a))
                  .Set("b", Name(t.b))
                  .Set("d", Name(t.d))
                  .Set("compute_mode", Name(t.mode))
                  .Set("accumulate", Name(t.accumulate)));
  }
  return Json::Object()
      .Set("version", info.version)
      .Set("build", info.build)
      .Set("backend", info.backend)
      .Set("backend_reason", info.backend_reason)
      .Set("draining", info.draining)
      .Set("started_unix_seconds", info.started_unix_seconds)
      .Set("devices", devices)
      .Set("limits", Json::Object()
                         .Set("max_message_bytes", info.max_message_bytes)
                         .Set("max_queued_requests", info.max_queued_requests)
                         .Set("max_queued_bytes", info.max_queued_bytes)
                         .Set("max_extent", info.max_extent))
      .Set("types", types);
}

int RunInfo(const Context& context) {
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  const StatusOr<ClientServerInfo> info = client->Info(context.Call());
  if (!info.ok()) return context.Fail(info.status());
  if (context.json) {
    PrintJson(ToJson(*info));
    return kExitOk;
  }
  std::printf("gemmd %s (%s)%s\n", info->version.c_str(), info->build.c_str(),
              info->draining ? ", draining" : "");
  std::printf("backend %s: %s\n", info->backend.c_str(), info->backend_reason.c_str());
  for (const ClientDevice& d : info->devices) {
    std::printf("device %d: %s", d.ordinal, d.name.c_str());
    if (d.compute_capability > 0) {
      std::printf(", sm_%d, %d SMs, %s, driver %d.%d", d.compute_capability, d.sm_count,
                  Bytes(d.memory_bytes).c_str(), d.driver_version / 1000,
                  d.driver_version % 1000 / 10);
    }
    std::printf(", %d lanes\n", d.lanes);
  }
  std::printf("limits: message %s, queue %d requests and %s, extent %s\n",
              Bytes(info->max_message_bytes).c_str(), info->max_queued_requests,
              Bytes(info->max_queued_bytes).c_str(), Str(info->max_extent).c_str());
  std::printf("types:\n");
  for (const ClientTypes& types : info->types) std::printf("  %s\n", TypesText(types).c_str());
  return kExitOk;
}

int RunKernels(const Context& context) {
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  const StatusOr<std::vector<ClientKernel>> kernels = client->ListKernels(context.Call());
  if (!kernels.ok()) return context.Fail(kernels.status());
  Json list = Json::Array();
  std::vector<std::vector<std::string>> table = {
      {"KERNEL", "TILE", "THREADS", "MAX STAGES", "STAGE", "USABLE"}};
  for (const ClientKernel& k : *kernels) {
    list.Add(Json::Object()
                 .Set("name", k.name)
                 .Set("block_m", k.block_m)
                 .Set("block_n", k.block_n)
                 .Set("block_k", k.block_k)
                 .Set("threads", k.threads)
                 .Set("max_stages", k.max_stages)
                 .Set("stage_bytes", k.stage_bytes)
                 .Set("usable", k.usable));
    const bool tiled = k.block_m > 0;
    table.push_back(
        {k.name, tiled ? Str(k.block_m) + "x" + Str(k.block_n) + "x" + Str(k.block_k) : "-",
         k.threads > 0 ? Str(k.threads) : "-", k.max_stages > 0 ? Str(k.max_stages) : "-",
         k.stage_bytes > 0 ? Bytes(k.stage_bytes) : "-", k.usable ? "yes" : "no"});
  }
  if (context.json) {
    PrintJson(Json::Object().Set("kernels", list));
  } else {
    PrintTable(table);
  }
  return kExitOk;
}

int RunStats(const Context& context) {
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  const StatusOr<ClientStatistics> stats = client->Statistics(context.Call());
  if (!stats.ok()) return context.Fail(stats.status());
  Json kernels = Json::Array();
  std::vector<std::vector<std::string>> table = {{"KERNEL", "STAGES", "LAUNCHES", "KERNEL TIME"}};
  for (const ClientKernelStatistics& k : stats->kernels) {
    kernels.Add(Json::Object()
                    .Set("kernel", k.kernel)
                    .Set("stages", k.stages)
                    .Set("launches", k.launches)
                    .Set("kernel_seconds", k.kernel_seconds)
                    .Set("stalls_cycles", gemmd::ToJson(k.stalls)));
    table.push_back({k.kernel, Str(k.stages), Str(k.launches), Time(k.kernel_seconds)});
  }
  if (context.json) {
    PrintJson(Json::Object()
                  .Set("uptime_seconds", stats->uptime_seconds)
                  .Set("requests", Json::Object()
                                       .Set("admitted", stats->admitted)
                                       .Set("completed", stats->completed)
                                       .Set("failed", stats->failed)
                                       .Set("rejected", stats->rejected))
                  .Set("queued", stats->queued)
                  .Set("queued_bytes", stats->queued_bytes)
                  .Set("running", stats->running)
                  .Set("flops", stats->flops)
                  .Set("kernel_seconds", stats->kernel_seconds)
                  .Set("kernels", kernels)
                  .Set("pc_sampling_up", stats->pc_sampling_up)
                  .Set("pc_sampled_seconds", stats->pc_sampled_seconds)
                  .Set("stall_samples", gemmd::ToJson(stats->stall_samples)));
    return kExitOk;
  }
  std::printf("up %.0f s\n", stats->uptime_seconds);
  std::printf("requests: %lld admitted, %lld completed, %lld failed, %lld rejected\n",
              static_cast<long long>(stats->admitted), static_cast<long long>(stats->completed),
              static_cast<long long>(stats->failed), static_cast<long long>(stats->rejected));
  std::printf("now: %d queued (%s), %d running\n", stats->queued,
              Bytes(stats->queued_bytes).c_str(), stats->running);
  std::printf("work: %.3g flop in %s of kernel time\n", stats->flops,
              Time(stats->kernel_seconds).c_str());
  if (table.size() > 1) PrintTable(table);
  return kExitOk;
}

}  // namespace

void AddServerVerbs(CLI::App* app, Context* context) {
  app->add_subcommand("info", "What the server is: backend, devices, limits, types")->callback([=] {
    context->run = [=] { return RunInfo(*context); };
  });
  app->add_subcommand("kernels", "The kernels that the server has")->callback([=] {
    context->run = [=] { return RunKernels(*context); };
  });
  app->add_subcommand("stats", "What the server has done since it started")->callback([=] {
    context->run = [=] { return RunStats(*context); };
  });
}

}  // namespace gemmd::ctl
