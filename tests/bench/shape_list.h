// The shapes to measure: a list as kernels/core/shape_list.h has it, in which no name comes twice
// with one dtype.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/shape_list.h"
#include "kernels/core/status.h"

namespace gemmd::bench {

using Shape = NamedProblem;

// The class of similar shapes: the name up to its first dash.
std::string FamilyOf(const Shape& shape);

// As ParseShapeList(); INVALID_ARGUMENT, too, for a shape without a name or one that is there
// twice.
StatusOr<std::vector<Shape>> ParseShapes(const std::string& source, std::string_view text);

// Those that `rows` picks, in the order of `shapes`; all when `rows` is empty. A pick is NAME, or
// NAME:DTYPE. INVALID_ARGUMENT for a pick that no shape meets.
StatusOr<std::vector<Shape>> SelectShapes(const std::vector<Shape>& shapes,
                                          const std::vector<std::string>& rows);

// SelectShapes of a file's text. Fails as ReadText() does, too.
StatusOr<std::vector<Shape>> ReadShapes(const std::string& file,
                                        const std::vector<std::string>& rows);

// Whether the CUDA kernels take its type.
bool HasKernel(const GemmProblem& problem);

}  // namespace gemmd::bench
