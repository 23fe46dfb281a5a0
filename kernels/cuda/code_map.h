// Which part of a kernel's machine code does what, as far as its landmarks tell: waits on barriers,
// copies and tensor math.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/pc_sampler.h"

namespace gemmd {

// Covers the whole function. Knows the instructions of compute capability 8.0 to 9.0; what it does
// not know is kOther.
std::vector<CodeRange> RangesOf(std::span<const std::byte> code);

// The code of each function of a cubin, which is an ELF image; empty where it is none. The views
// are into `cubin`.
std::map<std::string, std::span<const std::byte>> FunctionsOf(std::span<const std::byte> cubin);

}  // namespace gemmd
