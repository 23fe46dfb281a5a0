// What the verbs of gemmctl ask and print alike.
#include <cstdio>
#include <utility>

#include "client/gemmctl.h"
#include "kernels/core/files.h"

namespace gemmd::ctl {

CLI::Option* AddDType(CLI::App* verb, const std::string& flag, std::string* name,
                      const std::string& help) {
  return verb->add_option(flag, *name, help)
      ->check(CLI::Validator(
          [](std::string& text) {
            return DTypeFromName(text) ? std::string()
                                       : text +
                                             " is not one of f16, bf16, f32, f64, e4m3, "
                                             "e5m2, i8, i32";
          },
          "TYPE"));
}

CLI::Validator TimeBetween(double least, double most, const std::string& limits) {
  const auto check = [=](const std::string& text) {
    const std::optional<double> seconds = ParseSeconds(text);
    if (seconds && *seconds >= least && *seconds <= most) return std::string();
    return text + " is not a time such as 500ms, 30s, 5m or 2h " + limits;
  };
  return {check, "TIME"};
}

std::optional<DType> ParseDType(const std::string& name) {
  return name.empty() ? std::nullopt : DTypeFromName(name);
}

Json Seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

double Tflops(const ClientResult& result) {
  const double seconds = std::chrono::duration<double>(result.phases.kernel).count();
  return seconds > 0 ? result.flops / seconds * 1e-12 : 0;
}

Json ToJson(const ClientResult& result) {
  const PhaseTimes& p = result.phases;
  return Json::Object()
      .Set("request_id", result.request_id)
      .Set("backend", result.backend)
      .Set("device", result.device)
      .Set("lane", result.lane)
      .Set("plan", ToJson(result.plan))
      .Set("phases_seconds", Json::Object()
                                 .Set("decode", Seconds(p.decode))
                                 .Set("queue", Seconds(p.queue))
                                 .Set("plan", Seconds(p.plan))
                                 .Set("stage", Seconds(p.stage))
                                 .Set("h2d", Seconds(p.h2d))
                                 .Set("kernel", Seconds(p.kernel))
                                 .Set("d2h", Seconds(p.d2h))
                                 .Set("unstage", Seconds(p.unstage))
                                 .Set("total", Seconds(p.total)))
      .Set("stalls_cycles", ToJson(result.stalls))
      .Set("flops", result.flops)
      .Set("tflops", Tflops(result))
      .Set("attempts", result.attempts)
      .Set("round_trip_seconds", Seconds(result.round_trip));
}

void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::fputs(TableText(rows).c_str(), stdout);
}

void PrintJson(const Json& json) {
  std::printf("%s\n", json.text().c_str());
  std::fflush(stdout);  // a watcher reads line by line
}

namespace {

// Lists of shapes are written by hand or by a script; more bytes than this are no such list.
constexpr int64_t kMaxListBytes = int64_t{4} << 20;

StatusOr<std::vector<NamedProblem>> ProblemsOfRanges(const ProblemOptions& options,
                                                     const ShapeTypes& types) {
  const std::pair<const char*, const std::string*> ranges[] = {
      {"--m", &options.m}, {"--n", &options.n}, {"--k", &options.k}};
  std::vector<int64_t> extents[3];
  for (size_t i = 0; i < 3; ++i) {
    const auto& [option, text] = ranges[i];
    if (text->empty()) {
      return InvalidArgument(
          option, std::string("--m, --n and --k go together; ") + option + " is missing");
    }
    ASSIGN_OR_RETURN(extents[i], ParseExtents(option, *text));
  }
  return CrossExtents(extents[0], extents[1], extents[2], types);
}

}  // namespace

void AddProblemOptions(CLI::App* verb, ProblemOptions* options) {
  verb->add_option("--shape", options->shapes, "A shape, MxNxK; may be given again")
      ->allow_extra_args(false);
  verb->add_option(
      "--shapes", options->file,
      "A file of lines name,dtype,layout,M,N,K[,BATCH]; layout is NN, NT, TN or TT, # starts a "
      "comment");
  verb->add_option("--m", options->m,
                   "Rows of D: a list, with START:END:+STEP and START:END:*FACTOR in it; every "
                   "--m with every --n and --k");
  verb->add_option("--n", options->n, "Columns of D, as --m");
  verb->add_option("--k", options->k, "Lengths of the sum, as --m");
  AddDType(verb, "--dtype", &options->dtype, "Type of A and B, but for --shapes")
      ->capture_default_str();
  verb->add_flag("--trans-a", options->trans_a, "A is stored as K rows of M, but for --shapes");
  verb->add_flag("--trans-b", options->trans_b, "B is stored as N rows of K, but for --shapes");
}

StatusOr<std::vector<NamedProblem>> ReadProblems(const ProblemOptions& options) {
  const ShapeTypes types{.type = *ParseDType(options.dtype),
                         .op_a = options.trans_a ? Op::kT : Op::kN,
                         .op_b = options.trans_b ? Op::kT : Op::kN};
  std::vector<NamedProblem> problems;
  const auto add = [&](const std::vector<NamedProblem>& more) {
    problems.insert(problems.end(), more.begin(), more.end());
    return CheckProblemCount(static_cast<int64_t>(problems.size()));
  };
  for (const std::string& shape : options.shapes) {
    ASSIGN_OR_RETURN(NamedProblem problem, ParseShape(shape, types));
    RETURN_IF_ERROR(add({problem}));
  }
  if (!options.file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(options.file, kMaxListBytes));
    ASSIGN_OR_RETURN(const std::vector<NamedProblem> rows, ParseShapeList(options.file, text));
    RETURN_IF_ERROR(add(rows));
  }
  if (!options.m.empty() || !options.n.empty() || !options.k.empty()) {
    ASSIGN_OR_RETURN(const std::vector<NamedProblem> crossed, ProblemsOfRanges(options, types));
    RETURN_IF_ERROR(add(crossed));
  }
  return problems;
}

}  // namespace gemmd::ctl
