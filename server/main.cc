// gemmd: reads its configuration, serves until a signal or the loss of a device, and ends in order.
//
// Exit codes: 0 drained; 1 could not start, or was cut; 2 a device was lost.
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "server/config.h"
#include "server/log.h"
#include "server/server.h"
#include "server/signals.h"

namespace gemmd {
namespace {

constexpr int kExitCut = 1;
constexpr int kExitDeviceLost = 2;
constexpr std::chrono::milliseconds kHealthInterval{100};  // how soon a lost device is noticed
constexpr std::chrono::milliseconds kSignalInterval{20};   // how soon a second signal cuts a drain
// What a cut leaves for the answers to work that never ran.
constexpr std::chrono::milliseconds kLastAnswers{500};

// Ends the process without destructors, which would wait for work that may never end.
[[noreturn]] void CutShort(Server& server, int exit_code) {
  server.CutQueue();
  server.WaitIdle(SteadyClock::now() + kLastAnswers);
  spdlog::default_logger()->flush();
  std::_Exit(exit_code);
}

void Drain(Server& server, const Config& config, const Signals& signals, spdlog::logger& log) {
  server.StartDrain();
  const SteadyClock::time_point deadline = SteadyClock::now() + config.drain_timeout;
  while (!server.WaitIdle(SteadyClock::now() + kSignalInterval)) {
    if (signals.Wait(std::chrono::milliseconds(0)) != 0) {
      log.error("second signal: cut {} running and {} queued requests",
                server.engine().running_requests(), server.engine().queued_requests());
      CutShort(server, kExitCut);
    }
    if (SteadyClock::now() >= deadline) {
      log.error("drain-timeout={}ms passed: cut {} running and {} queued requests",
                config.drain_timeout.count(), server.engine().running_requests(),
                server.engine().queued_requests());
      CutShort(server, kExitCut);
    }
    if (!server.healthy()) return;
  }
}

int Serve(Server& server, const Config& config, const Signals& signals, spdlog::logger& log) {
  int signal = 0;
  while (signal == 0 && server.healthy()) signal = signals.Wait(kHealthInterval);
  if (signal != 0) {
    log.info("{}: draining {} running and {} queued requests, for at most {} ms",
             signal == SIGTERM ? "SIGTERM" : "SIGINT", server.engine().running_requests(),
             server.engine().queued_requests(), config.drain_timeout.count());
    Drain(server, config, signals, log);
  }
  if (!server.healthy()) {
    log.error("a device was lost; the server ends so that it can be started anew");
    server.StartDrain();
    CutShort(server, kExitDeviceLost);
  }
  server.Shutdown();
  log.info("drained");
  return EXIT_SUCCESS;
}

int Fail(const Status& status) {
  std::cerr << "gemmd: " << status.message() << '\n';
  return EXIT_FAILURE;
}

int Run(int argc, char** argv) {
  const Signals signals;
  const BuildFacts build = ThisBuild();
  const StatusOr<Invocation> invocation = ParseInvocation(
      {argv + 1, argv + argc}, [](const char* name) { return std::getenv(name); },
      build.ToString());
  if (!invocation.ok()) return Fail(invocation.status());
  if (!invocation->serve) {
    std::cout << invocation->text;
    return EXIT_SUCCESS;
  }
  const Config& config = invocation->config;
  const std::shared_ptr<spdlog::logger> log = MakeLogger(config.log_format, config.log_level);
  RouteGrpcLog(log);
  log->info("gemmd {}", build.ToString());

  const auto refuse = [&log](const Status& status) {
    log->error("cannot start: {}", status.ToString());
    return EXIT_FAILURE;
  };
  StatusOr<BackendSet> backends = MakeBackends(config.backend);
  if (!backends.ok()) return refuse(backends.status());
  StatusOr<std::unique_ptr<Server>> server =
      Server::Start(config, *std::move(backends), build, log);
  if (!server.ok()) return refuse(server.status());
  if (!config.port_file.empty()) {
    if (const Status status = WritePortFile(config.port_file, **server); !status.ok()) {
      return refuse(status);
    }
  }
  return Serve(**server, config, signals, *log);
}

}  // namespace
}  // namespace gemmd

int main(int argc, char** argv) { return gemmd::Run(argc, argv); }
