// The configuration file: lines of `key = value` as TOML has them, and nothing more of TOML.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/status.h"

namespace gemmd {

// Key and value, in the file's order. A value is a "string", a 'literal', a whole number, true or
// false; # starts a comment. NOT_FOUND for a file that cannot be read; INVALID_ARGUMENT with file,
// line and key for all else: tables, arrays, keys that come twice, text that is none of this.
StatusOr<std::vector<std::pair<std::string, std::string>>> ReadConfigFile(const std::string& path);

// `text` as a string of that file.
std::string QuotedForConfigFile(std::string_view text);

}  // namespace gemmd
