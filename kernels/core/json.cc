#include "kernels/core/json.h"

#include <cmath>
#include <cstdio>

#include "kernels/core/tables.h"
#include "kernels/core/text.h"
#include "kernels/core/utf8.h"

namespace gemmd {
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

Json::Json(double value) : text_(std::isfinite(value) ? Exact(value) : "null") {}

Json Json::Rounded(double value, int decimals) {
  return Json(Raw{}, std::isfinite(value) ? Fixed(value, decimals) : "null");
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
