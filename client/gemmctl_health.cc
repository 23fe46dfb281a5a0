// gemmctl health
#include <cstdio>

#include "client/gemmctl.h"

namespace gemmd::ctl {
namespace {

struct HealthOptions {
  std::string service;
  bool watch = false;
};

void Print(const Context& context, const HealthOptions& options, Serving serving) {
  if (context.json) {
    PrintJson(Json::Object().Set("service", options.service).Set("status", Name(serving)));
    return;
  }
  std::printf("%s\n", std::string(Name(serving)).c_str());
  std::fflush(stdout);
}

int RunHealth(const Context& context, const HealthOptions& options) {
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  CallOptions call = context.Call();
  if (options.watch) {
    const auto show = [&](Serving serving) {
      Print(context, options, serving);
      return std::ferror(stdout) == 0;  // nobody reads it any more
    };
    const Status ended = client->WatchHealth(options.service, show, call);
    return ended.ok() ? kExitOk : context.Fail(kExitRpc, ended);
  }
  const StatusOr<Serving> serving = client->Health(options.service, call);
  if (!serving.ok()) return context.Fail(kExitRpc, serving.status());
  Print(context, options, *serving);
  return *serving == Serving::kServing ? kExitOk : kExitNotServing;
}

}  // namespace

void AddHealth(CLI::App* app, Context* context) {
  auto options = std::make_shared<HealthOptions>();
  CLI::App* verb = app->add_subcommand(
      "health",
      "Whether the server serves. Exit code: 0 serving, 1 bad arguments, 2 no connection, 3 the "
      "call failed, 4 not serving");
  verb->add_option("--service", options->service,
                   "A service's name, as gemmd.v1.GemmService; empty: the server as a whole")
      ->check(Utf8());
  verb->add_flag(
      "--watch", options->watch,
      "Print each status until the server ends; --timeout bounds how long it may be silent");
  verb->callback([=] { context->run = [=] { return RunHealth(*context, *options); }; });
}

}  // namespace gemmd::ctl
