// gemmctl study: what pipeline stages buy, measured on the server.
#include <cstdio>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include <unistd.h>

#include "client/gemmctl.h"
#include "client/interrupt.h"
#include "client/study_plot.h"
#include "client/study_report.h"
#include "client/tune_report.h"
#include "kernels/core/files.h"

namespace gemmd::ctl {
namespace {

struct StudyOptions {
  ProblemOptions problems;
  std::string kernel, csv, svg;
  int max_stages = 0;
};

// Before anything is measured: a long study must not end in a path that cannot be written.
Status CheckPaths(const StudyOptions& options) {
  const std::pair<const char*, const std::string&> files[] = {
      {"--shapes", options.problems.file}, {"--csv", options.csv}, {"--svg", options.svg}};
  for (size_t i = 0; i < std::size(files); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const auto& [name, path] = files[i];
      if (path.empty() || files[j].second.empty() || !SameFile(path, files[j].second)) continue;
      return InvalidArgument(
          name, std::string(name) + "=" + path + " is the file of " + files[j].first + " too");
    }
  }
  if (!options.csv.empty()) RETURN_IF_ERROR(CheckWritable(options.csv));
  if (!options.svg.empty()) RETURN_IF_ERROR(CheckWritable(options.svg));
  return OkStatus();
}

Status WriteFiles(const StudyOptions& options, const std::vector<StudySeries>& study) {
  if (!options.csv.empty()) RETURN_IF_ERROR(WriteText(options.csv, StudyCsv(study)));
  if (!options.svg.empty()) RETURN_IF_ERROR(WriteText(options.svg, StudySvg(study)));
  return OkStatus();
}

// "12 measurements of 3 of the 40 shapes, which s.csv has": what there is of a study cut short.
std::string Have(const StudyOptions& options, const std::vector<StudySeries>& study, size_t points,
                 const std::vector<NamedProblem>& problems, bool written) {
  std::set<std::string> distinct;
  for (const NamedProblem& named : problems) distinct.insert(ProblemText(named.problem));
  std::string text = Count(static_cast<int64_t>(points), "measurement") + " of " +
                     std::to_string(study.size()) + " of " +
                     Count(static_cast<int64_t>(distinct.size()), "shape");
  if (!written) return text;
  std::string files = options.csv;
  if (!options.svg.empty()) files += (files.empty() ? "" : " and ") + options.svg;
  return files.empty() ? text : text + " written to " + files;
}

void Print(const Context& context, const std::vector<StudySeries>& study) {
  if (context.json) {
    PrintJson(StudyJson(study));
    return;
  }
  std::string text;
  for (const StudySeries& series : study) text += (text.empty() ? "" : "\n") + StudyTable(series);
  const std::string summary = StudySummary(study);
  if (!summary.empty()) text += "\n" + summary;
  std::fputs(text.c_str(), stdout);
}

StatusOr<std::vector<NamedProblem>> ProblemsToStudy(const StudyOptions& options) {
  ASSIGN_OR_RETURN(std::vector<NamedProblem> problems, ReadProblems(options.problems));
  if (problems.empty()) {
    return InvalidArgument("shapes", "no shapes: give --shape, --shapes, or --m with --n and --k");
  }
  RETURN_IF_ERROR(CheckPaths(options));
  return problems;
}

int RunStudy(const Context& context, const StudyOptions& options) {
  const StatusOr<std::vector<NamedProblem>> problems = ProblemsToStudy(options);
  if (!problems.ok()) return context.Fail(kExitBadInput, problems.status());
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  ClientStudyRequest request{.kernel = options.kernel, .max_stages = options.max_stages};
  for (const NamedProblem& named : *problems) request.problems.push_back(named.problem);

  const Interrupt interrupt;
  const bool terminal = !context.json && isatty(STDERR_FILENO) != 0;
  std::vector<ClientStudyPoint> points;
  const auto keep = [&](const ClientStudyPoint& point) {
    points.push_back(point);
    if (!terminal) return;
    std::fprintf(stderr, "\r%zu measured: %s, %d stages\033[K", points.size(),
                 ProblemText(point.problem).c_str(), point.plan.stages);
  };
  const Status status = client->Study(request, keep, interrupt.token(), context.Call());
  if (terminal) std::fprintf(stderr, "\r\033[K");
  const std::vector<StudySeries> study = GroupStudy(*problems, points);
  if (study.empty()) {  // nothing to print, or to put in the place of old files
    if (interrupt.signal() != 0 && !status.ok()) {
      return context.Fail(kExitInterrupted + interrupt.signal(),
                          Cancelled("interrupted; nothing was measured"));
    }
    return status.ok() ? context.Fail(kExitRpc, Internal("the server measured nothing"))
                       : context.Fail(status);
  }
  Print(context, study);
  const Status written = WriteFiles(options, study);
  if (!written.ok()) std::ignore = context.Fail(kExitBadInput, written);
  if (status.ok()) return written.ok() ? kExitOk : kExitBadInput;
  const std::string have = Have(options, study, points.size(), *problems, written.ok());
  if (interrupt.signal() != 0) {
    return context.Fail(kExitInterrupted + interrupt.signal(), Cancelled("interrupted; " + have));
  }
  const int code = context.Fail(status);
  if (!context.json) std::fprintf(stderr, "gemmctl: %s\n", have.c_str());
  return code;
}

}  // namespace

void AddStudy(CLI::App* app, Context* context) {
  auto options = std::make_shared<StudyOptions>();
  CLI::App* verb = app->add_subcommand(
      "study",
      "Time of shapes at every number of pipeline stages, beside the model's: the best, the fewest "
      "stages within 2 % of it, and a single buffer against the ring (L + C against max(L, C)). "
      "FULL and EMPTY: waits for a panel and for a free stage, in % of the main loop. --timeout "
      "bounds how long the server may be silent");
  AddProblemOptions(verb, &options->problems);
  verb->add_option("--kernel", options->kernel,
                   "This kernel (see gemmctl kernels); by default the planner's for each shape")
      ->check(Utf8());
  verb->add_option("--max-stages", options->max_stages, "Up to this many stages; 0: what fits")
      ->check(Integer<int>(0))
      ->capture_default_str();
  verb->add_option("--csv", options->csv,
                   "Write all that was measured to this file, also when the study ends early");
  verb->add_option("--svg", options->svg, "Draw time against stages into this file");
  verb->callback([=] { context->run = [=] { return RunStudy(*context, *options); }; });
}

}  // namespace gemmd::ctl
