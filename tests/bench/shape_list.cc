#include "tests/bench/shape_list.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>

namespace gemmd::bench {
namespace {

constexpr std::array<std::string_view, 7> kDTypes = {"bf16", "fp16", "fp32", "tf32",
                                                     "fp64", "fp8",  "int8"};
constexpr std::array<std::string_view, 4> kLayouts = {"NN", "NT", "TN", "TT"};

template <size_t kCount>
Status CheckWord(const char* field, std::string_view value,
                 const std::array<std::string_view, kCount>& words) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return OkStatus();
  std::string message = std::string(field) + "=" + std::string(value) + " is none of";
  for (const std::string_view word : words) message += " " + std::string(word);
  return InvalidArgument(field, message);
}

StatusOr<int64_t> ParseExtent(const char* field, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxExtent) {
    return InvalidArgument(field, std::string(field) + "=" + std::string(text) +
                                      " is not a whole number from 1 to " +
                                      std::to_string(kMaxExtent));
  }
  return value;
}

StatusOr<Shape> ParseShape(std::string_view line) {
  const std::vector<std::string_view> fields = Split(line, ',');
  if (fields.size() != 6 && fields.size() != 7) {
    return InvalidArgument("shape",
                           std::to_string(fields.size()) +
                               " fields, not the 6 or 7 of name,dtype,layout,M,N,K[,BATCH]");
  }
  if (fields[0].empty()) return InvalidArgument("name", "name is empty");
  RETURN_IF_ERROR(CheckWord("dtype", fields[1], kDTypes));
  RETURN_IF_ERROR(CheckWord("layout", fields[2], kLayouts));
  Shape shape{std::string(fields[0]), std::string(fields[1]), std::string(fields[2])};
  ASSIGN_OR_RETURN(shape.m, ParseExtent("M", fields[3]));
  ASSIGN_OR_RETURN(shape.n, ParseExtent("N", fields[4]));
  ASSIGN_OR_RETURN(shape.k, ParseExtent("K", fields[5]));
  if (fields.size() == 7) {
    ASSIGN_OR_RETURN(shape.batch, ParseExtent("BATCH", fields[6]));
  }
  return shape;
}

bool Picks(std::string_view row, const Shape& shape) {
  return row == shape.name || row == shape.name + ":" + shape.dtype;
}

}  // namespace

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> fields;
  for (;;) {
    const size_t end = text.find(separator);
    fields.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return fields;
    text.remove_prefix(end + 1);
  }
}

StatusOr<std::vector<Shape>> ParseShapes(std::string_view text) {
  std::vector<Shape> shapes;
  int number = 0;
  for (std::string_view line : Split(text, '\n')) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    StatusOr<Shape> shape = ParseShape(line);
    const std::string place = "line " + std::to_string(number) + ": ";
    if (!shape.ok()) {
      return InvalidArgument(shape.status().field(), place + shape.status().message());
    }
    for (const Shape& other : shapes) {
      if (other.name == shape->name && other.dtype == shape->dtype) {
        return InvalidArgument(
            "name", place + "name=" + shape->name + " is there before with " + shape->dtype);
      }
    }
    shapes.push_back(*std::move(shape));
  }
  if (shapes.empty()) return InvalidArgument("shapes", "shapes holds no shape");
  return shapes;
}

StatusOr<std::vector<Shape>> SelectShapes(const std::vector<Shape>& shapes,
                                          const std::vector<std::string>& rows) {
  if (rows.empty()) return shapes;
  for (const std::string& row : rows) {
    if (std::none_of(shapes.begin(), shapes.end(), [&](const Shape& s) { return Picks(row, s); })) {
      return InvalidArgument("rows", "rows=" + row + " is the name of no shape");
    }
  }
  std::vector<Shape> picked;
  for (const Shape& shape : shapes) {
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return Picks(row, shape); })) {
      picked.push_back(shape);
    }
  }
  return picked;
}

StatusOr<std::vector<Shape>> ReadShapes(const std::string& file,
                                        const std::vector<std::string>& rows) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream || !text) return InvalidArgument("shapes", "--shapes=" + file + " cannot be read");
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes, ParseShapes(text.str()));
  return SelectShapes(shapes, rows);
}

std::optional<GemmProblem> ProblemOf(const Shape& shape) {
  GemmProblem problem;
  if (shape.dtype == "bf16") {
    problem.type_a = DType::kBF16;
  } else if (shape.dtype == "fp16") {
    problem.type_a = DType::kF16;
  } else if (shape.dtype == "fp32") {
    problem.type_a = DType::kF32;
  } else {
    return std::nullopt;
  }
  problem.type_b = problem.type_d = problem.type_a;
  problem.m = shape.m, problem.n = shape.n, problem.k = shape.k, problem.batch = shape.batch;
  problem.op_a = shape.layout[0] == 'T' ? Op::kT : Op::kN;
  problem.op_b = shape.layout[1] == 'T' ? Op::kT : Op::kN;
  return WithPackedLayouts(problem);
}

}  // namespace gemmd::bench
