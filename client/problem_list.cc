#include "client/problem_list.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "client/text.h"
#include "kernels/core/checked.h"

namespace gemmd {
namespace {

std::vector<std::string_view> Split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<int64_t> WholeNumber(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

Status Refuse(std::string_view field, std::string_view value, const std::string& why) {
  const std::string name(field);
  return InvalidArgument(name, name + "=" + std::string(value) + " " + why);
}

StatusOr<int64_t> ParseExtent(std::string_view field, std::string_view text) {
  const std::optional<int64_t> value = WholeNumber(text);
  if (value && *value >= 1 && *value <= kMaxExtent) return *value;
  return Refuse(field, text, "is not a whole number from 1 to " + std::to_string(kMaxExtent));
}

StatusOr<GemmProblem> MakeProblem(int64_t m, int64_t n, int64_t k, const ShapeTypes& types,
                                  int64_t batch = 1) {
  GemmProblem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.batch = batch;
  problem.op_a = types.op_a;
  problem.op_b = types.op_b;
  problem.type_a = problem.type_b = types.type;
  problem.type_d = DefaultResultType(types.type);
  problem = WithPackedLayouts(problem);
  RETURN_IF_ERROR(ValidateProblem(problem));
  return problem;
}

// One part of a list of extents; `option` and `text` are for messages.
Status AddExtents(const std::string& option, std::string_view text, std::vector<int64_t>* extents) {
  const std::vector<std::string_view> parts = Split(text, ":");
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
  const std::optional<int64_t> by = WholeNumber(step.substr(1));
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

struct TypeWord {
  std::string_view word;
  DType type;
  ComputeMode mode = ComputeMode::kIeee;
};

// Names of types in lists of shapes, besides our own.
constexpr std::array<TypeWord, 6> kTypeWords = {{{"fp16", DType::kF16},
                                                 {"fp32", DType::kF32},
                                                 {"tf32", DType::kF32, ComputeMode::kTf32},
                                                 {"fp64", DType::kF64},
                                                 {"fp8", DType::kF8E4M3},
                                                 {"int8", DType::kI8}}};

StatusOr<TypeWord> ParseType(std::string_view text) {
  for (const TypeWord& word : kTypeWords) {
    if (word.word == text) return word;
  }
  const std::optional<DType> type = DTypeFromName(text);
  if (type) return TypeWord{text, *type};
  return Refuse("dtype", text,
                "is not one of f16, bf16, f32, f64, e4m3, e5m2, i8, fp16, fp32, tf32, fp64, fp8, "
                "int8");
}

StatusOr<Op> ParseOp(std::string_view layout, size_t operand) {
  if (layout.size() == 2 && layout[operand] == 'N') return Op::kN;
  if (layout.size() == 2 && layout[operand] == 'T') return Op::kT;
  return Refuse("layout", layout, "is not one of NN, NT, TN, TT");
}

StatusOr<NamedProblem> ParseRow(std::string_view line) {
  std::vector<std::string_view> cells = Split(line, ",");
  if (cells.size() != 6 && cells.size() != 7) {
    return InvalidArgument("row", std::to_string(cells.size()) +
                                      " cells, not the 6 or 7 of name,dtype,layout,M,N,K[,BATCH]");
  }
  for (std::string_view& cell : cells) cell = Trim(cell);
  ASSIGN_OR_RETURN(const TypeWord type, ParseType(cells[1]));
  ShapeTypes types{.type = type.type};
  ASSIGN_OR_RETURN(types.op_a, ParseOp(cells[2], 0));
  ASSIGN_OR_RETURN(types.op_b, ParseOp(cells[2], 1));
  ASSIGN_OR_RETURN(const int64_t m, ParseExtent("M", cells[3]));
  ASSIGN_OR_RETURN(const int64_t n, ParseExtent("N", cells[4]));
  ASSIGN_OR_RETURN(const int64_t k, ParseExtent("K", cells[5]));
  int64_t batch = 1;
  if (cells.size() == 7) {
    ASSIGN_OR_RETURN(batch, ParseExtent("BATCH", cells[6]));
  }
  ASSIGN_OR_RETURN(GemmProblem problem, MakeProblem(m, n, k, types, batch));
  problem.mode = type.mode;
  return NamedProblem{std::string(cells[0]), problem};
}

}  // namespace

DType DefaultResultType(DType type_a) {
  switch (type_a) {
    case DType::kF8E4M3:
    case DType::kF8E5M2: return DType::kBF16;
    case DType::kI8: return DType::kI32;
    default: return type_a;
  }
}

std::string ProblemText(const GemmProblem& p) {
  std::string text(Name(p.type_a));
  if (p.type_b != p.type_a) text += " x " + std::string(Name(p.type_b));
  text += p.op_a == Op::kT ? " T" : " N";
  text += p.op_b == Op::kT ? "T " : "N ";
  text += std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k);
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
  const std::vector<std::string_view> parts = Split(text, "x");
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
  const StatusOr<GemmProblem> problem = MakeProblem(extents[0], extents[1], extents[2], types);
  if (!problem.ok()) {
    return InvalidArgument("--shape",
                           "--shape=" + std::string(text) + ": " + problem.status().message());
  }
  return NamedProblem{"", *problem};
}

StatusOr<std::vector<int64_t>> ParseExtents(const std::string& option, std::string_view text) {
  std::vector<int64_t> extents;
  for (const std::string_view part : Split(text, ",")) {
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
        ASSIGN_OR_RETURN(GemmProblem problem, MakeProblem(rows, columns, length, types));
        problems.push_back({"", problem});
      }
    }
  }
  return problems;
}

StatusOr<std::vector<NamedProblem>> ParseProblemCsv(const std::string& path,
                                                    std::string_view text) {
  std::vector<NamedProblem> problems;
  int64_t number = 0;
  for (std::string_view line : Split(text, "\n")) {
    ++number;
    line = Trim(line);
    if (line.empty() || line.front() == '#') continue;
    StatusOr<NamedProblem> row = ParseRow(line);
    if (!row.ok()) {
      return InvalidArgument(row.status().field(),
                             path + ":" + std::to_string(number) + ": " + row.status().message());
    }
    problems.push_back(*std::move(row));
    RETURN_IF_ERROR(CheckProblemCount(static_cast<int64_t>(problems.size())));
  }
  if (problems.empty()) return InvalidArgument("shapes", path + " holds no shapes");
  return problems;
}

Status CheckProblemCount(int64_t count) {
  if (count <= kMaxProblems) return OkStatus();
  return OutOfRange("shapes", (count >= kMaxExtent ? "too many" : std::to_string(count)) +
                                  std::string(" shapes exceed the limit of ") +
                                  std::to_string(kMaxProblems));
}

}  // namespace gemmd
