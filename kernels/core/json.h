// JSON text, written in one go. Keys keep the order in which they were set.
//
//   Json::Object().Set("kernel", "simt").Set("stages", 4).text()
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace gemmd {

class Json {
 public:
  // Bytes that are not UTF-8 become U+FFFD.
  Json(std::string_view value);                                      // NOLINT
  Json(const char* value) : Json(std::string_view(value)) {}         // NOLINT
  Json(const std::string& value) : Json(std::string_view(value)) {}  // NOLINT
  Json(bool value) : text_(value ? "true" : "false") {}              // NOLINT
  Json(std::integral auto value) : text_(std::to_string(value)) {}   // NOLINT
  Json(double value);  // NOLINT: shortest text that reads back the same; null if not finite

  // With so many digits behind the point; null if not finite.
  static Json Rounded(double value, int decimals);
  static Json Null() { return Json(Raw{}, "null"); }
  static Json Object() { return Json(Raw{}, "{}"); }
  static Json Array() { return Json(Raw{}, "[]"); }

  Json& Set(std::string_view key, const Json& value);  // of an Object; each key once
  Json& Add(const Json& value);                        // of an Array

  const std::string& text() const { return text_; }

 private:
  struct Raw {};
  Json(Raw, std::string text) : text_(std::move(text)) {}
  void Append(const std::string& item);

  std::string text_;
};

}  // namespace gemmd
