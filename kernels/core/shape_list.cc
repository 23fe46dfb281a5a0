#include "kernels/core/shape_list.h"

#include <array>
#include <optional>
#include <utility>

#include "kernels/core/text.h"

namespace gemmd {
namespace {

Status Refuse(std::string_view field, std::string_view value, const std::string& why) {
  const std::string name(field);
  return InvalidArgument(name, name + "=" + std::string(value) + " " + why);
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

StatusOr<NamedProblem> ParseLine(std::string_view line) {
  std::vector<std::string_view> cells = Split(line, ',');
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
  ASSIGN_OR_RETURN(GemmProblem problem, PackedProblem(m, n, k, types, batch));
  problem.mode = type.mode;
  return NamedProblem{std::string(cells[0]), problem, std::string(cells[1])};
}

}  // namespace

StatusOr<GemmProblem> PackedProblem(int64_t m, int64_t n, int64_t k, const ShapeTypes& types,
                                    int64_t batch) {
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

StatusOr<int64_t> ParseExtent(std::string_view field, std::string_view text) {
  const std::optional<int64_t> value = ParseNumber<int64_t>(text);
  if (value && *value >= 1 && *value <= kMaxExtent) return *value;
  return Refuse(field, text, "is not a whole number from 1 to " + std::to_string(kMaxExtent));
}

StatusOr<std::vector<NamedProblem>> ParseShapeList(const std::string& source,
                                                   std::string_view text) {
  std::vector<NamedProblem> problems;
  int64_t number = 0;
  for (std::string_view line : Split(text, '\n')) {
    ++number;
    line = Trim(line);
    if (line.empty() || line.front() == '#') continue;
    StatusOr<NamedProblem> row = ParseLine(line);
    if (!row.ok()) {
      return InvalidArgument(row.status().field(),
                             source + ":" + std::to_string(number) + ": " + row.status().message());
    }
    problems.push_back(*std::move(row));
  }
  if (problems.empty()) return InvalidArgument("shapes", source + " holds no shapes");
  return problems;
}

}  // namespace gemmd
