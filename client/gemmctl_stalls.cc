// gemmctl stalls: what kernels wait for, interval by interval.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <sstream>

#include <sys/ioctl.h>
#include <unistd.h>

#include "client/gemmctl.h"
#include "client/interrupt.h"
#include "client/stall_report.h"

namespace gemmd::ctl {
namespace {

struct StallsOptions {
  std::string interval = "1s";
  int64_t count = 0;
};

// Shows one block of lines after the other: on a terminal each in the place of the last.
class Screen {
 public:
  explicit Screen(bool json) : terminal_(!json && isatty(STDOUT_FILENO) != 0) {}

  void Show(const std::string& block) {
    if (terminal_) {
      Clear();
      std::fputs(Fitted(block).c_str(), stdout);
    } else {
      std::printf("%s%s", shown_ ? "\n" : "", block.c_str());
    }
    shown_ = true;
    std::fflush(stdout);
  }
  // Makes room for a line on stderr, which then stays.
  void Clear() {
    if (lines_ > 0) std::printf("\r\033[%dA\033[J", lines_);
    lines_ = 0;
    std::fflush(stdout);
  }

 private:
  // A line that wraps, and one that scrolls away, could not be gone back to.
  std::string Fitted(const std::string& block) {
    winsize size{};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const size_t columns = known ? size.ws_col : 80;
    const int rows = known && size.ws_row > 0 ? size.ws_row : 24;
    std::string text;
    std::istringstream lines(block);
    for (std::string line; lines_ + 1 < rows && std::getline(lines, line); ++lines_) {
      text += line.substr(0, columns) + "\n";
    }
    return text;
  }

  const bool terminal_;
  bool shown_ = false;
  int lines_ = 0;  // of the block above the cursor; 0 where there is none to replace
};

// False when a stop was requested first.
bool WaitFor(std::chrono::duration<double> time, const std::stop_token& stop) {
  std::mutex mu;
  std::condition_variable_any never;
  std::unique_lock lock(mu);
  never.wait_for(lock, stop, std::chrono::ceil<std::chrono::milliseconds>(time),
                 [] { return false; });
  return !stop.stop_requested();
}

// How the verb ends when `status` is that of its last call, after `shown` intervals.
int EndStalls(const Context& context, const StallsOptions& options, const Interrupt& interrupt,
              const Status& status, int64_t shown) {
  if (interrupt.signal() == 0) return context.Fail(status);
  if (options.count == 0 && shown > 0) return kExitOk;  // there is no other end
  const std::string had = options.count > 0
                              ? std::to_string(shown) + " of " + Count(options.count, "interval")
                              : "no interval";
  return context.Fail(kExitInterrupted + interrupt.signal(),
                      Cancelled("interrupted; " + had + " had passed"));
}

int RunStalls(const Context& context, const StallsOptions& options) {
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  const Interrupt interrupt;
  Screen screen(context.json);
  const auto note = [&](const char* text) {
    if (context.json) return;
    screen.Clear();
    std::fprintf(stderr, "gemmctl: %s\n", text);
  };
  bool told = false;
  const auto ask = [&] {
    StatusOr<ClientStatistics> statistics = client->Statistics(context.Call(), interrupt.token());
    if (statistics.ok() && !statistics->pc_sampling_up && !told) {
      told = true;
      note("the server does not sample program counters: stall reasons are not known");
    }
    return statistics;
  };
  const std::chrono::duration<double> time(*ParseSeconds(options.interval));
  int64_t shown = 0;
  StatusOr<ClientStatistics> before = ask();
  while (before.ok() && WaitFor(time, interrupt.token())) {
    StatusOr<ClientStatistics> now = ask();
    if (!now.ok()) {
      before = std::move(now);
      break;
    }
    const std::optional<StallInterval> interval = Between(*before, *now);
    before = std::move(now);
    if (!interval) {
      note("the server was started anew, and its counters with it");
      continue;
    }
    if (context.json) {
      PrintJson(ToJson(*interval));
    } else {
      screen.Show(StallText(*interval));
    }
    ++shown;
    if (shown == options.count || std::ferror(stdout) != 0) return kExitOk;
  }
  return EndStalls(context, options, interrupt, before.status(), shown);
}

}  // namespace

void AddStalls(CLI::App* app, Context* context) {
  auto options = std::make_shared<StallsOptions>();
  CLI::App* verb = app->add_subcommand(
      "stalls",
      "What the server's kernels wait for, interval by interval, until Ctrl-C or --count. TIME %: "
      "kernel time of the interval, above 100 where several run at once; FULL and EMPTY: waits for "
      "a panel and for a free stage, in % of the main loop; REASONS: why warps waited, where the "
      "server samples, selected being none");
  verb->add_option("--interval", options->interval,
                   "Ask this often, from 10ms to 24h; a bare number is of seconds")
      ->check(TimeBetween(0.01, 24 * 3600, "from 10ms to 24h"))
      ->capture_default_str();
  verb->add_option("--count", options->count, "End after so many intervals; 0: go on")
      ->check(Integer<int64_t>(0))
      ->capture_default_str();
  verb->callback([=] { context->run = [=] { return RunStalls(*context, *options); }; });
}

}  // namespace gemmd::ctl
