// gemmctl: a gemmd server from the command line. client/README.md shows its verbs.
#include "client/gemmctl.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "kernels/core/utf8.h"

#ifndef GEMMD_VERSION
#error "GEMMD_VERSION comes from the build"
#endif

namespace gemmd::ctl {
namespace {

Milliseconds FromSeconds(double seconds) {
  return std::chrono::ceil<Milliseconds>(std::chrono::duration<double>(seconds));
}

// A standard stream that the caller closed: its number would go to the next file or connection, and
// what is printed with it. Opened the wrong way round, so that its use still fails.
void OccupyStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free: fd
  }
}

CLI::Validator SecondsInRange() {
  const auto check = [](const std::string& text) {
    const std::optional<double> value = ParseNumber<double>(text);
    if (value && *value >= 0.001 && *value <= 1e6) return std::string();
    return text + " is not a number of seconds from 0.001 to 1000000";
  };
  return {check, "SECONDS"};
}

// What a command line that cannot be parsed did wrong.
std::string Complaint(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> words = app.remaining();
  const bool no_verb = app.get_subcommands().empty() && !words.empty();
  const std::string what = no_verb ? "unknown verb \"" + words.front() + "\"" : error.what();
  return what + " (gemmctl --help lists the verbs)";
}

}  // namespace

CLI::Validator Utf8() {
  // An empty type name leaves the help as it is.
  return {[](const std::string& text) {
            return IsUtf8(text) ? std::string() : std::string("the text is not UTF-8");
          },
          ""};
}

bool NoAnswer(const Status& status) {
  return status.code() == StatusCode::kDeadlineExceeded ||
         status.code() == StatusCode::kUnavailable;
}

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

int Context::AfterOutput(int exit_code) const {
  const bool failed = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed) return exit_code;
  const std::string why = errno != 0 ? ": " + std::generic_category().message(errno) : "";
  std::fprintf(stderr, "gemmctl: cannot write stdout%s\n", why.c_str());
  return exit_code == kExitOk ? kExitBadInput : exit_code;
}

std::unique_ptr<GemmClient> Context::Connect(int* exit_code) const {
  StatusOr<std::unique_ptr<GemmClient>> client = GemmClient::Create({.target = server});
  if (!client.ok()) {
    *exit_code = Fail(kExitBadInput, client.status());
    return nullptr;
  }
  const double seconds = std::min(connect_timeout_seconds, timeout_seconds);
  const Status connected = (*client)->Connect(FromSeconds(seconds));
  if (!connected.ok()) {
    *exit_code = Fail(kExitNoConnection, connected);
    return nullptr;
  }
  return *std::move(client);
}

}  // namespace gemmd::ctl

int main(int argc, char** argv) {
  using namespace gemmd;
  ctl::OccupyStandardStreams();
  ctl::Context context;
  CLI::App app("Multiplies matrices on a gemmd server.", "gemmctl");
  app.set_version_flag("--version", "gemmctl " GEMMD_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--server", context.server, "HOST:PORT, [IPv6]:PORT or unix:PATH of the server")
      ->envname("GEMMD_SERVER")
      ->capture_default_str();
  const CLI::Validator seconds = ctl::SecondsInRange();
  app.add_option("--timeout", context.timeout_seconds,
                 "Seconds for a call, retries included; of a stream, that the server may be silent")
      ->check(seconds)
      ->capture_default_str();
  app.add_option("--connect-timeout", context.connect_timeout_seconds,
                 "Seconds to wait for a connection, --timeout at most")
      ->check(seconds)
      ->capture_default_str();
  app.add_flag("--json", context.json,
               "Print JSON: one object, or for tune, stalls and health --watch one a line");
  ctl::AddMatmul(&app, &context);
  ctl::AddCheck(&app, &context);
  ctl::AddPlan(&app, &context);
  ctl::AddServerVerbs(&app, &context);
  ctl::AddTune(&app, &context);
  ctl::AddStudy(&app, &context);
  ctl::AddProfile(&app, &context);
  ctl::AddStalls(&app, &context);
  ctl::AddHealth(&app, &context);
  ctl::AddLab(&app, &context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      return context.AfterOutput(app.exit(error));
    }
    // Parsing stopped before its flags were set.
    context.json = std::any_of(argv, argv + argc,
                               [](const char* word) { return std::string_view(word) == "--json"; });
    return context.AfterOutput(context.Fail(
        ctl::kExitBadInput, InvalidArgument("command line", ctl::Complaint(app, error))));
  }
  return context.AfterOutput(context.run());
}
