// gemmctl: a gemmd server from the command line. client/README.md shows its verbs.
#include "client/gemmctl.h"

#include <algorithm>
#include <cstdio>

#ifndef GEMMD_VERSION
#error "GEMMD_VERSION comes from the build"
#endif

namespace gemmd::ctl {
namespace {

Milliseconds FromSeconds(double seconds) {
  return std::chrono::ceil<Milliseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

CallOptions Context::Call() const { return {.timeout = FromSeconds(timeout_seconds)}; }

int Context::Fail(int exit_code, const Status& status) const {
  std::fprintf(stderr, "gemmctl: %s\n", status.ToString().c_str());
  if (json) {
    Json error = Json::Object();
    error.Set("code", StatusCodeName(status.code())).Set("message", status.message());
    if (!status.field().empty()) error.Set("field", status.field());
    if (status.retry_after()) {
      error.Set("retry_after_seconds", Seconds(*status.retry_after()));
    }
    PrintJson(Json::Object().Set("error", error));
  }
  return exit_code;
}

int Context::Fail(const Status& status) const {
  const bool bad_input =
      status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kOutOfRange;
  return Fail(bad_input ? kExitBadInput : kExitRpc, status);
}

std::unique_ptr<GemmClient> Context::Connect(int* exit_code) const {
  StatusOr<std::unique_ptr<GemmClient>> client = GemmClient::Create({.target = server});
  if (!client.ok()) {
    *exit_code = Fail(kExitBadInput, client.status());
    return nullptr;
  }
  const Status connected = (*client)->Connect(FromSeconds(connect_timeout_seconds));
  if (!connected.ok()) {
    *exit_code = Fail(kExitNoConnection, connected);
    return nullptr;
  }
  return *std::move(client);
}

}  // namespace gemmd::ctl

int main(int argc, char** argv) {
  using namespace gemmd;
  ctl::Context context;
  CLI::App app("Multiplies matrices on a gemmd server.", "gemmctl");
  app.set_version_flag("--version", "gemmctl " GEMMD_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--server", context.server, "HOST:PORT, [IPv6]:PORT or unix:PATH of the server")
      ->envname("GEMMD_SERVER")
      ->capture_default_str();
  const CLI::Range seconds(0.001, 1e6, "seconds");
  app.add_option("--timeout", context.timeout_seconds, "Seconds for a call, retries included")
      ->check(seconds)
      ->capture_default_str();
  app.add_option("--connect-timeout", context.connect_timeout_seconds,
                 "Seconds to wait for a connection")
      ->check(seconds)
      ->capture_default_str();
  app.add_flag("--json", context.json, "Print one JSON object");
  ctl::AddMatmul(&app, &context);
  ctl::AddCheck(&app, &context);
  ctl::AddServerVerbs(&app, &context);
  ctl::AddHealth(&app, &context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    // Parsing stopped before its flags were set.
    context.json = std::any_of(argv, argv + argc,
                               [](const char* word) { return std::string_view(word) == "--json"; });
    return context.Fail(ctl::kExitBadInput,
                        InvalidArgument("command line", std::string(error.what()) +
                                                            " (gemmctl --help lists the verbs)"));
  }
  return context.run();
}
