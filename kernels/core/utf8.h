// What is UTF-8: names come from users and drivers, and JSON and protobuf take nothing else.
#pragma once

#include <cstddef>
#include <string_view>

namespace gemmd {

// Length of the character that starts `text`, which is not empty; 0 when there is none. Overlong
// forms, surrogates and values past U+10FFFF are none.
size_t Utf8Length(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace gemmd
