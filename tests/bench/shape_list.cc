#include "tests/bench/shape_list.h"

#include <algorithm>
#include <set>
#include <utility>

#include "kernels/core/files.h"

namespace gemmd::bench {
namespace {

constexpr int64_t kMaxListBytes = 1 << 20;

bool Picks(std::string_view row, const Shape& shape) {
  return row == shape.name || row == shape.name + ":" + shape.dtype;
}

}  // namespace

std::string FamilyOf(const Shape& shape) { return shape.name.substr(0, shape.name.find('-')); }

StatusOr<std::vector<Shape>> ParseShapes(const std::string& source, std::string_view text) {
  ASSIGN_OR_RETURN(std::vector<Shape> shapes, ParseShapeList(source, text));
  std::set<std::pair<std::string_view, std::string_view>> known;
  for (const Shape& shape : shapes) {
    if (shape.name.empty()) return InvalidArgument("name", source + ": a shape's name is empty");
    if (known.emplace(shape.name, shape.dtype).second) continue;
    return InvalidArgument(
        "name", source + ": name=" + shape.name + " is there twice with dtype=" + shape.dtype);
  }
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
  ASSIGN_OR_RETURN(const std::string text, ReadText(file, kMaxListBytes));
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes, ParseShapes(file, text));
  return SelectShapes(shapes, rows);
}

bool HasKernel(const GemmProblem& problem) {
  switch (problem.type_a) {
    case DType::kBF16:
    case DType::kF16: return true;
    case DType::kF32: return problem.mode == ComputeMode::kIeee;
    default: return false;
  }
}

}  // namespace gemmd::bench
