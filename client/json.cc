#include "client/json.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace gemmd {
namespace {

// Length of the UTF-8 character at the start of `text`; 0 when there is none.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                        : lead >= 0xe0 && lead <= 0xef ? 3
                        : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies past U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return length;
}

}  // namespace

Json::Json(std::string_view value) : text_("\"") {
  while (!value.empty()) {
    const size_t length = Utf8Length(value);
    const char ch = value[0];
    if (length == 0) {
      text_ += "\\ufffd";
    } else if (ch == '"' || ch == '\\') {
      text_ += '\\';
      text_ += ch;
    } else if (length == 1 && ch < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", ch);
      text_ += escape;
    } else {
      text_ += value.substr(0, length);
    }
    value.remove_prefix(length == 0 ? 1 : length);
  }
  text_ += '"';
}

Json::Json(double value) : text_("null") {
  if (!std::isfinite(value)) return;
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  text_.assign(digits, end.ptr);
}

void Json::Append(const std::string& item) {
  const char close = text_.back();
  text_.pop_back();
  if (text_.size() > 1) text_ += ", ";
  text_ += item;
  text_ += close;
}

Json& Json::Set(std::string_view key, const Json& value) {
  Append(Json(key).text_ + ": " + value.text_);
  return *this;
}

Json& Json::Add(const Json& value) {
  Append(value.text_);
  return *this;
}

}  // namespace gemmd
