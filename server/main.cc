// gemmd: reads its configuration, serves until a signal or the loss of a device, and ends in order.
//
// Exit codes: 0 drained; 1 could not start, or was cut; 2 a device was lost.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "kernels/core/signals.h"
#include "server/config.h"
#include "server/log.h"
#include "server/process.h"
#include "server/server.h"

namespace gemmd {
namespace {

constexpr int kExitCut = 1;
constexpr int kExitDeviceLost = 2;
constexpr std::chrono::milliseconds kHealthInterval{100};  // how soon a lost device is noticed
constexpr std::chrono::milliseconds kSignalInterval{20};   // how soon a second signal cuts a drain
// What a cut leaves for the answers to work that never ran.
constexpr std::chrono::milliseconds kLastAnswers{500};
// What a drain gives callers to read their replies once all products have ended.
constexpr std::chrono::seconds kReplyGrace{5};

// Ends the process without destructors. Those of gRPC wait up to 10 s for a thread that polls
// connections which are gone, those of /metrics up to 2 s for theirs, and no setting shortens
// either; those of the devices wait for work that may never end. Everything that outlives the
// process has its last state when this is called. Not std::_Exit, which the thread sanitizer does
// not see.
[[noreturn]] void Leave(PortFile& port_file, spdlog::logger& log, int exit_code) {
  port_file.Remove();
  log.flush();
  _exit(exit_code);
}

[[noreturn]] void CutShort(Server& server, PortFile& port_file, spdlog::logger& log,
                           int exit_code) {
  server.CutQueue();
  server.WaitIdle(SteadyClock::now() + kLastAnswers);
  Leave(port_file, log, exit_code);
}

// ", a tune of 12 problems"; empty where nothing is tuned.
std::string AndTuning(const Server& server) {
  const std::string run = server.tuning();
  return run.empty() ? run : ", " + run;
}

std::string Remaining(const Server& server) {
  return fmt::format("cut {} running and {} queued products, {} replies{}",
                     server.engine().running_requests(), server.engine().queued_requests(),
                     std::max(0, server.open_calls() - server.engine().running_requests() -
                                     server.engine().queued_requests()),
                     AndTuning(server));
}

void Drain(Server& server, const Config& config, const Signals& signals, PortFile& port_file,
           spdlog::logger& log) {
  server.StartDrain();
  const SteadyClock::time_point deadline = SteadyClock::now() + config.drain_timeout;
  const auto obey_second_signal = [&] {
    if (signals.Wait(std::chrono::milliseconds(0)) == 0) return;
    log.error("second signal: {}", Remaining(server));
    CutShort(server, port_file, log, kExitCut);
  };
  while (!server.WaitProducts(SteadyClock::now() + kSignalInterval)) {
    obey_second_signal();
    if (SteadyClock::now() >= deadline) {
      log.error("drain-timeout={}ms passed: {}", config.drain_timeout.count(), Remaining(server));
      CutShort(server, port_file, log, kExitCut);
    }
    if (!server.healthy()) return;
  }
  const SteadyClock::time_point last_reply = std::min(deadline, SteadyClock::now() + kReplyGrace);
  while (!server.WaitIdle(SteadyClock::now() + kSignalInterval)) {
    obey_second_signal();
    if (SteadyClock::now() >= last_reply) {
      log.warn(
          "all products have ended; cut {} replies with {} bytes of results that their callers "
          "did not take",
          server.open_calls(), server.reply_bytes());
      return;
    }
  }
}

const char* NameOf(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGHUP ? "SIGHUP" : "SIGINT";
}

[[noreturn]] void Serve(Server& server, const Config& config, const Signals& signals,
                        PortFile& port_file, spdlog::logger& log) {
  int signal = 0;
  while (signal == 0 && server.healthy()) signal = signals.Wait(kHealthInterval);
  if (signal != 0) {
    log.info("{}: draining {} running and {} queued requests{}, for at most {} ms", NameOf(signal),
             server.engine().running_requests(), server.engine().queued_requests(),
             AndTuning(server), config.drain_timeout.count());
    Drain(server, config, signals, port_file, log);
  }
  if (!server.healthy()) {
    log.error("a device was lost; the server ends so that it can be started anew");
    server.StartDrain();
    CutShort(server, port_file, log, kExitDeviceLost);
  }
  server.Shutdown();
  log.info("drained");
  Leave(port_file, log, EXIT_SUCCESS);
}

int Fail(const Status& status) {
  std::cerr << "gemmd: " << status.message() << '\n';
  return EXIT_FAILURE;
}

int Run(int argc, char** argv) {
  const Signals signals(Signals::Take::kAll);
  // A caller that vanishes is an error code, and so is a file that may not grow.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
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
  StatusOr<PortFile> port_file = PortFile::Claim(config.port_file);
  if (!port_file.ok()) return refuse(port_file.status());
  log->info("at most {} open files", RaiseFileLimit());
  StatusOr<BackendSet> backends = MakeBackends(config.backend);
  if (!backends.ok()) return refuse(backends.status());
  StatusOr<std::unique_ptr<Server>> server =
      Server::Start(config, *std::move(backends), build, log);
  if (!server.ok()) return refuse(server.status());
  if (const Status status = port_file->Write(Addresses(**server)); !status.ok()) {
    return refuse(status);
  }
  Serve(**server, config, signals, *port_file, *log);
}

}  // namespace
}  // namespace gemmd

int main(int argc, char** argv) {
  gemmd::OpenStandardStreams();
  return gemmd::Run(argc, argv);
}
