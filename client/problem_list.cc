#include "client/problem_list.h"

#include <array>
#include <optional>
#include <utility>

#include "kernels/core/checked.h"
#include "kernels/core/tables.h"
#include "kernels/core/text.h"

namespace gemmd {
namespace {

Status Refuse(std::string_view field, std::string_view value, const std::string& why) {
  const std::string name(field);
  return InvalidArgument(name, name + "=" + std::string(value) + " " + why);
}

// One part of a list of extents; `option` and `text` are for messages.
Status AddExtents(const std::string& option, std::string_view text, std::vector<int64_t>* extents) {
  const std::vector<std::string_view> parts = Split(text, ':');
  const auto add = [&](int64_t extent) {
    extents->push_back(extent);
    return CheckProblemCount(static_cast<int64_t>(extents->size()));
  };
  if (parts.size() == 1) {
    ASSIGN_OR_RETURN(const int64_t extent, ParseExtent(option, text));
    return add(extent);
  }
  const std::string_view step = parts.size() == 3 ? parts[2] : std::string_view();
  if (step.size() < 2 || (step[0] != '+' && step[0] != '*')) {
    return Refuse(option, text, "is not START:END:+STEP or START:END:*FACTOR");
  }
  ASSIGN_OR_RETURN(const int64_t start, ParseExtent(option, parts[0]));
  ASSIGN_OR_RETURN(const int64_t end, ParseExtent(option, parts[1]));
  if (start > end) return Refuse(option, text, "starts above its end");
  const bool multiply = step[0] == '*';
  const std::optional<int64_t> by = ParseNumber<int64_t>(step.substr(1));
  const int64_t least = multiply ? 2 : 1;
  if (!by || *by < least) {
    return Refuse(option, text,
                  multiply ? "has a factor that is not a whole number from 2 on"
                           : "has a step that is not a whole number from 1 on");
  }
  std::optional<int64_t> extent = start;
  while (extent && *extent <= end) {
    RETURN_IF_ERROR(add(*extent));
    extent = multiply ? CheckedMul(extent, *by) : CheckedAdd(extent, *by);
  }
  return OkStatus();
}

}  // namespace

std::string ProblemText(const GemmProblem& p) {
  std::string text(Name(p.type_a));
  if (p.type_b != p.type_a) text += " x " + std::string(Name(p.type_b));
  text += " " + OpsName(p) + " " + std::to_string(p.m) + "x" + std::to_string(p.n) + "x" +
          std::to_string(p.k);
  if (p.batch != 1) text += " batch " + std::to_string(p.batch);
  if (p.type_d != DefaultResultType(p.type_a)) text += " -> " + std::string(Name(p.type_d));
  if (p.mode != ComputeMode::kIeee) text += " " + std::string(Name(p.mode));
  return text;
}

double Tflops(const GemmProblem& problem, double seconds) {
  return seconds > 0 ? problem.flops() / seconds * 1e-12 : 0;
}

std::string TflopsText(const GemmProblem& problem, double seconds) {
  const double tflops = Tflops(problem, seconds);
  return Fixed(tflops, tflops < 10 ? 3 : 1);
}

StatusOr<NamedProblem> ParseShape(std::string_view text, const ShapeTypes& types) {
  const std::vector<std::string_view> parts = Split(text, 'x');
  if (parts.size() != 3) return Refuse("--shape", text, "is not MxNxK");
  std::array<int64_t, 3> extents{};
  for (size_t i = 0; i < extents.size(); ++i) {
    const StatusOr<int64_t> extent = ParseExtent("--shape", parts[i]);
    if (!extent.ok()) {
      return InvalidArgument("--shape",
                             "--shape=" + std::string(text) + ": " +
                                 (parts[i].empty() ? "an extent" : std::string(parts[i])) +
                                 " is not a whole number from 1 to " + std::to_string(kMaxExtent));
    }
    extents[i] = *extent;
  }
  const StatusOr<GemmProblem> problem = PackedProblem(extents[0], extents[1], extents[2], types);
  if (!problem.ok()) {
    return InvalidArgument("--shape",
                           "--shape=" + std::string(text) + ": " + problem.status().message());
  }
  return NamedProblem{"", *problem};
}

StatusOr<std::vector<int64_t>> ParseExtents(const std::string& option, std::string_view text) {
  std::vector<int64_t> extents;
  for (const std::string_view part : Split(text, ',')) {
    RETURN_IF_ERROR(AddExtents(option, Trim(part), &extents));
  }
  return extents;
}

StatusOr<std::vector<NamedProblem>> CrossExtents(const std::vector<int64_t>& m,
                                                 const std::vector<int64_t>& n,
                                                 const std::vector<int64_t>& k,
                                                 const ShapeTypes& types) {
  const std::optional<int64_t> count =
      CheckedMul(CheckedMul(static_cast<int64_t>(m.size()), static_cast<int64_t>(n.size())),
                 static_cast<int64_t>(k.size()));
  RETURN_IF_ERROR(CheckProblemCount(count.value_or(kMaxExtent)));
  std::vector<NamedProblem> problems;
  for (const int64_t rows : m) {
    for (const int64_t columns : n) {
      for (const int64_t length : k) {
        ASSIGN_OR_RETURN(GemmProblem problem, PackedProblem(rows, columns, length, types));
        problems.push_back({"", problem});
      }
    }
  }
  return problems;
}

Status CheckProblemCount(int64_t count) {
  if (count <= kMaxProblems) return OkStatus();
  return OutOfRange("shapes", (count >= kMaxExtent ? "too many" : std::to_string(count)) +
                                  std::string(" shapes exceed the limit of ") +
                                  std::to_string(kMaxProblems));
}

}  // namespace gemmd
