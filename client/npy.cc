#include "client/npy.h"

#include "kernels/core/checked.h"

namespace gemmd {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kMaxHeaderBytes = 64 << 10;
constexpr size_t kMaxRank = 32;  // NumPy's

Status Bad(std::string message) { return InvalidArgument("npy", std::move(message)); }

// At most 80 characters of a file's own text, fit for a message.
std::string Printable(std::string_view text) {
  std::string out;
  for (const char ch : text.substr(0, 80)) out += ch >= 0x20 && ch < 0x7f ? ch : '?';
  if (text.size() > 80) out += "...";
  return out;
}

// Reads the header's Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class DictParser {
 public:
  explicit DictParser(std::string_view text) : text_(text) {}

  Status Parse(NpyHeader* header) {
    RETURN_IF_ERROR(Expect('{'));
    bool descr = false, order = false, shape = false;
    while (!Take('}')) {
      std::string key;
      RETURN_IF_ERROR(String(&key));
      RETURN_IF_ERROR(Expect(':'));
      bool* const seen = key == "descr"           ? &descr
                         : key == "fortran_order" ? &order
                         : key == "shape"         ? &shape
                                                  : nullptr;
      if (seen == nullptr) return Bad("header has the unknown key '" + Printable(key) + "'");
      if (*seen) return Bad("header repeats the key '" + key + "'");
      *seen = true;
      RETURN_IF_ERROR(seen == &descr   ? Descr(&header->descr)
                      : seen == &order ? Bool(&header->fortran_order)
                                       : Shape(&header->shape));
      if (Take(',')) continue;
      RETURN_IF_ERROR(Expect('}'));
      break;
    }
    SkipSpace();
    if (at_ != text_.size()) return Bad("header goes on after its dictionary");
    if (!descr || !order || !shape) {
      return Bad(std::string("header lacks the key '") +
                 (!descr   ? "descr"
                  : !order ? "fortran_order"
                           : "shape") +
                 "'");
    }
    return OkStatus();
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool Take(char ch) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != ch) return false;
    ++at_;
    return true;
  }

  Status Expect(char ch) {
    if (Take(ch)) return OkStatus();
    return Bad(std::string("header lacks '") + ch + "' at its byte " + std::to_string(at_));
  }

  Status String(std::string* out) {
    SkipSpace();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') {
      return Bad("header lacks a string at its byte " + std::to_string(at_));
    }
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return Bad("header ends within a string");
    *out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return OkStatus();
  }

  Status Descr(std::string* out) {
    SkipSpace();
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) {
      return Bad("structured element type " + Printable(Bracketed()) + " is not a matrix's");
    }
    return String(out);
  }

  // From a bracket here to the one that closes it.
  std::string_view Bracketed() const {
    int depth = 0;
    for (size_t end = at_; end < text_.size(); ++end) {
      if (text_[end] == '[' || text_[end] == '(') ++depth;
      if (text_[end] == ']' || text_[end] == ')') --depth;
      if (depth == 0) return text_.substr(at_, end + 1 - at_);
    }
    return text_.substr(at_);
  }

  Status Bool(bool* out) {
    SkipSpace();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      *out = word == "True";
      return OkStatus();
    }
    return Bad("header's fortran_order is neither True nor False");
  }

  Status Shape(std::vector<int64_t>* shape) {
    RETURN_IF_ERROR(Expect('('));
    while (!Take(')')) {
      if (shape->size() == kMaxRank) {
        return Bad("shape has more than " + std::to_string(kMaxRank) + " extents");
      }
      int64_t extent = 0;
      RETURN_IF_ERROR(Extent(&extent));
      shape->push_back(extent);
      if (Take(',')) continue;
      RETURN_IF_ERROR(Expect(')'));
      break;
    }
    return OkStatus();
  }

  Status Extent(int64_t* extent) {
    if (Take('-')) return Bad("shape has a negative extent");
    SkipSpace();
    const size_t start = at_;
    std::optional<int64_t> value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = CheckedAdd(CheckedMul(value, 10), text_[at_] - '0');
    }
    if (at_ == start) return Bad("shape lacks a number at header byte " + std::to_string(at_));
    if (!value) {
      return Bad("shape has the extent " + Printable(text_.substr(start, at_ - start)) +
                 ", above the limit 2^63-1");
    }
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 marked long integers
    *extent = *value;
    return OkStatus();
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

StatusOr<int64_t> NpyDataOffset(std::string_view start) {
  if (start.size() < 10 || start.substr(0, kMagic.size()) != kMagic) {
    return Bad("not a .npy file: its first bytes are not \\x93NUMPY and a version");
  }
  const auto byte = [&](size_t i) { return int64_t{static_cast<unsigned char>(start[i])}; };
  const int64_t major = byte(6);
  if (major < 1 || major > 3 || byte(7) != 0) {
    return Bad("version " + std::to_string(major) + "." + std::to_string(byte(7)) +
               " of the .npy format is not 1.0, 2.0 or 3.0");
  }
  if (major > 1 && start.size() < 12) return Bad("truncated: the header's length is missing");
  const int64_t fixed = major == 1 ? 10 : 12;
  int64_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kMaxHeaderBytes) {
    return Bad("header of " + std::to_string(length) + " bytes exceeds the limit of " +
               std::to_string(kMaxHeaderBytes));
  }
  return fixed + length;
}

StatusOr<NpyHeader> ParseNpyHeader(std::string_view head) {
  NpyHeader header;
  ASSIGN_OR_RETURN(header.data_offset, NpyDataOffset(head));
  if (static_cast<int64_t>(head.size()) < header.data_offset) {
    return Bad("truncated: the header takes " + std::to_string(header.data_offset) +
               " bytes, there are " + std::to_string(head.size()));
  }
  const size_t fixed = head[6] == 1 ? 10 : 12;
  const std::string_view dict = head.substr(fixed, static_cast<size_t>(header.data_offset) - fixed);
  RETURN_IF_ERROR(DictParser(dict).Parse(&header));
  std::optional<int64_t> elements = 1;
  for (const int64_t extent : header.shape) elements = CheckedMul(elements, extent);
  if (!elements) return Bad("shape has more than 2^63-1 elements");
  return header;
}

StatusOr<DType> NpyElementType(std::string_view descr, std::optional<DType> wanted) {
  const std::string quoted = "element type '" + Printable(descr) + "'";
  if (descr.size() < 2) return Bad(quoted + " is not NumPy's");
  if (descr[0] == '>') return Bad(quoted + " is big-endian; only little-endian is read");
  if (descr[1] == 'O') return Bad(quoted + " holds Python objects, not numbers");
  const std::string_view name = descr.substr(1);
  const bool order_ok =
      descr[0] == '<' || (descr[0] == '|' && (name.back() == '1' || name == "V2"));
  if (order_ok) {
    if (name == "f2") return DType::kF16;
    if (name == "f4") return DType::kF32;
    if (name == "f8") return DType::kF64;
    if (name == "i1") return DType::kI8;
    if (name == "i4") return DType::kI32;
    if (name == "V2" || (name == "u2" && wanted == DType::kBF16)) return DType::kBF16;
    if (name == "f1") return DType::kF8E5M2;
    const bool fp8 = wanted == DType::kF8E4M3 || wanted == DType::kF8E5M2;
    if ((name == "V1" || name == "u1") && fp8) return *wanted;
    if (name == "V1" || name == "u1") {
      return Bad(quoted + " is e4m3 or e5m2 bits only when the dtype asked for says which");
    }
    if (name == "u2") return Bad(quoted + " is bf16 bits only when the dtype asked for is bf16");
  }
  return Bad(quoted + " is not one of f2, f4, f8, i1, i4, V2 (bf16), V1 (fp8), little-endian");
}

}  // namespace gemmd
