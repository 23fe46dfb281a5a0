// gemmctl tune: measures plans on the server, which keeps the fastest.
#include <cstdio>
#include <limits>
#include <unordered_map>

#include <sys/ioctl.h>
#include <unistd.h>

#include "client/gemmctl.h"
#include "client/interrupt.h"
#include "client/tune_report.h"

namespace gemmd::ctl {
namespace {

struct TuneOptions {
  ProblemOptions problems;
  bool served = false, calibrate = false;
  std::string budget;
};

int TerminalColumns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// One run: shows its progress, and keeps what the summary needs.
class TuneRun {
 public:
  TuneRun(const Context& context, GemmClient* client, bool calibrate,
          const std::vector<NamedProblem>& problems)
      : context_(context),
        client_(client),
        start_(std::chrono::steady_clock::now()),
        calibrate_(calibrate) {
    for (const NamedProblem& named : problems) {
      shapes_[ProblemText(named.problem)] = {named, {}};
    }
  }

  // Asks for the plans that tuning may change. One that cannot be had is not compared; an error
  // where the server does not answer, so that as many timeouts as there are shapes do not add up.
  Status AskPlans(const std::stop_token& stop) {
    for (auto& [key, shape] : shapes_) {
      if (stop.stop_requested()) return OkStatus();
      const StatusOr<ClientExplanation> plan = client_->Plan(shape.named.problem, context_.Call());
      if (NoAnswer(plan.status())) return plan.status();
      if (plan.ok()) shape.before = plan->plan;
    }
    return OkStatus();
  }

  void Show(const ClientTuneProgress& progress) {
    ShowCalibrations(progress);
    summary_.done = progress.done;
    summary_.total = progress.total;
    tuning_file_ = progress.tuning_file;
    saved_ = progress.saved;
    const Shape* shape = nullptr;
    if (progress.problem) {
      const auto found = shapes_.find(ProblemText(*progress.problem));
      if (found != shapes_.end()) shape = &found->second;
    }
    const std::string name = shape != nullptr ? shape->named.name : "";
    if (context_.json) {
      PrintJson(ToJson(progress, name));
    } else {
      if (bar_) {
        const bool calibrating = calibrate_ && !progress.problem &&
                                 (progress.calibrations.empty() || progress.total == 0);
        const std::string bar =
            calibrating ? "calibrating" : ProgressBar(progress, name, TerminalColumns() - 1);
        std::fprintf(stderr, "\r%s\033[K", bar.c_str());
      }
      if (lines_ && progress.best) {
        std::printf("%s\n", ProgressLine(progress, name).c_str());
        std::fflush(stdout);
      }
    }
    if (shape != nullptr && shape->before && progress.best) Compare(*shape, *progress.best);
  }

  void End() const {
    if (bar_) std::fprintf(stderr, "\r\033[K");
  }
  bool began() const { return summary_.total > 0 || summary_.calibrated > 0; }

  // After the call, which ended so: asks what the plans that changed are known to take.
  void PrintSummary(const Status& ended, const std::stop_token& stop) {
    bool answers = !NoAnswer(ended);
    for (const auto& [problem, before, best_seconds] : changed_) {
      if (stop.stop_requested() || !answers) break;
      const StatusOr<ClientExplanation> now = client_->Plan(problem, context_.Call());
      answers = !NoAnswer(now.status());
      if (!now.ok()) continue;
      for (const ClientPlan& candidate : now->candidates) {
        if (!SamePlan(candidate, before) || candidate.measured_seconds <= 0) continue;
        summary_.gains.push_back(candidate.measured_seconds / best_seconds);
        break;
      }
    }
    summary_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    if (context_.json) {
      PrintJson(Json::Object().Set("summary", ToJson(summary_)));
    } else {
      std::fputs(SummaryText(summary_).c_str(), stdout);
    }
  }

  // What is known of a call that ended early. The server saves the rest when it hears of a Ctrl-C,
  // and may have gone without where it ended the call itself.
  std::string Kept(bool interrupted) const {
    if (summary_.done == 0) {
      return summary_.calibrated > 0 ? "the calibration is in use" : "nothing was measured";
    }
    std::string text = std::to_string(summary_.done) + " of " + std::to_string(summary_.total) +
                       " shapes are done; ";
    if (!tuning_file_) {
      return text + "the server has no tuning file: what was measured lasts until it ends";
    }
    if (interrupted) return text + "the server saves what was measured in its tuning file";
    return text + "the server's tuning file has at least " + std::to_string(saved_) + " of them";
  }

 private:
  struct Shape {
    NamedProblem named;
    std::optional<ClientPlan> before;
  };
  struct Changed {
    GemmProblem problem;
    ClientPlan before;
    double best_seconds;
  };

  // Those that are new; as JSON they are part of the progress.
  void ShowCalibrations(const ClientTuneProgress& progress) {
    const auto shown = static_cast<size_t>(summary_.calibrated);
    for (size_t i = shown; i < progress.calibrations.size() && !context_.json; ++i) {
      End();
      std::printf("%s\n", CalibrationText(progress.calibrations[i]).c_str());
      std::fflush(stdout);
    }
    summary_.calibrated = static_cast<int>(progress.calibrations.size());
  }

  void Compare(const Shape& shape, const ClientPlan& best) {
    ++summary_.compared;
    if (SamePlan(*shape.before, best)) return;
    ++summary_.changed;
    if (best.measured_seconds > 0) {
      changed_.push_back({shape.named.problem, *shape.before, best.measured_seconds});
    }
  }

  const Context& context_;
  GemmClient* const client_;
  const std::chrono::steady_clock::time_point start_;
  const bool calibrate_;
  const bool bar_ = !context_.json && isatty(STDERR_FILENO) != 0;
  const bool lines_ = !bar_ || isatty(STDOUT_FILENO) == 0;
  std::unordered_map<std::string, Shape> shapes_;  // by ProblemText()
  std::vector<Changed> changed_;
  TuneSummary summary_;
  bool tuning_file_ = false;
  int saved_ = 0;
};

StatusOr<ClientTuneRequest> MakeRequest(const TuneOptions& options,
                                        const std::vector<NamedProblem>& problems) {
  ClientTuneRequest request{.served = options.served, .calibrate = options.calibrate};
  request.budget_seconds = ParseSeconds(options.budget).value_or(0);
  for (const NamedProblem& named : problems) request.problems.push_back(named.problem);
  if (problems.empty() && !options.served && !options.calibrate) {
    return InvalidArgument("shapes",
                           "no shapes: give --shape, --shapes, --m with --n and --k, --served, or "
                           "--calibrate");
  }
  return request;
}

int RunTune(const Context& context, const TuneOptions& options) {
  const StatusOr<std::vector<NamedProblem>> problems = ReadProblems(options.problems);
  if (!problems.ok()) return context.Fail(kExitBadInput, problems.status());
  const StatusOr<ClientTuneRequest> request = MakeRequest(options, *problems);
  if (!request.ok()) return context.Fail(kExitBadInput, request.status());
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  const Interrupt interrupt;
  TuneRun run(context, client.get(), options.calibrate, *problems);
  const Status asked = run.AskPlans(interrupt.token());
  if (!asked.ok()) return context.Fail(asked);
  const Status status = client->Tune(
      *request, [&](const ClientTuneProgress& progress) { run.Show(progress); }, interrupt.token(),
      context.Call());
  run.End();
  if (status.ok() || run.began()) run.PrintSummary(status, interrupt.token());
  if (status.ok()) return kExitOk;
  if (interrupt.signal() != 0) {
    return context.Fail(kExitInterrupted + interrupt.signal(),
                        Cancelled("interrupted; " + run.Kept(true)));
  }
  const int code = context.Fail(status);
  if (!context.json && run.began()) std::fprintf(stderr, "gemmctl: %s\n", run.Kept(false).c_str());
  return code;
}

}  // namespace

void AddTune(CLI::App* app, Context* context) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* verb = app->add_subcommand(
      "tune",
      "Measures plans on the server, which keeps the fastest of each shape. --timeout bounds how "
      "long the server may be silent. Ctrl-C ends it and exits with 130; what was measured so far "
      "stays in use, and is saved where the server has a tuning file");
  AddProblemOptions(verb, &options->problems);
  verb->add_flag("--served", options->served, "Also the shapes that the server has served");
  verb->add_option("--budget", options->budget,
                   "At most this long: 500ms, 30s, 5m, 2h, up to 168h; a bare number is of seconds")
      ->check(TimeBetween(std::numeric_limits<double>::min(), 7 * 24 * 3600,
                          "of at most 168h, 7 days"));
  verb->add_flag(
      "--calibrate", options->calibrate,
      "First measure latency, bandwidth and FLOP rate of the devices, from which the model "
      "plans; without shapes, nothing else");
  verb->callback([=] { context->run = [=] { return RunTune(*context, *options); }; });
}

}  // namespace gemmd::ctl
