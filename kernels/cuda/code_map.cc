#include "kernels/cuda/code_map.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include <elf.h>

namespace gemmd {
namespace {

constexpr size_t kInstructionBytes = 16;
// So many instructions between two of one kind still belong to it: addresses, predicates.
constexpr size_t kBridge = 16;

// From the first check of an mbarrier, which does not wait, to the one that does.
constexpr size_t kChecksOfOneWait = 12;
constexpr size_t kClockRegister = 0x50;

// The low twelve bits of an instruction.
enum Opcode : unsigned {
  kHmma = 0x23c,
  kUtmaldgUniform = 0x3b4,  // of a box in global memory to shared memory
  kUtmaldg = 0x5b4,
  kBarRegister = 0x51d,
  kReadRegister = 0x805,  // CS2R
  kAcqbulk = 0x82e,       // griddepcontrol.wait
  kPhaseCheck = 0x5a7,    // SYNCS.PHASECHK: of an mbarrier
  kDepbar = 0x91a,
  kLdgdepbar = 0x9af,
  kWarpgroup = 0x9c5,  // WARPGROUP.ARRIVE and .DEPBAR
  kHgmma = 0x9f0,
  kBar = 0xb1d,
  kHgmmaRegister = 0xdf0,
  kLdgsts = 0xfae,  // cp.async
};

unsigned OpcodeAt(std::span<const std::byte> code, size_t index) {
  uint16_t low = 0;
  std::memcpy(&low, code.data() + index * kInstructionBytes, sizeof low);
  return low & 0xfff;
}

bool ReadsClock(std::span<const std::byte> code, size_t index) {
  return OpcodeAt(code, index) == kReadRegister &&
         code[index * kInstructionBytes + 9] == std::byte{kClockRegister};
}

// kWaitTurn stands for every wait on an mbarrier until it is known what follows.
CodeKind KindOf(unsigned opcode) {
  switch (opcode) {
    case kHmma:
    case kWarpgroup:
    case kHgmma:
    case kHgmmaRegister: return CodeKind::kTensorMath;
    case kUtmaldgUniform:
    case kUtmaldg:
    case kLdgdepbar:
    case kLdgsts: return CodeKind::kCopies;
    case kBar:
    case kBarRegister: return CodeKind::kBlockBarrier;
    case kAcqbulk: return CodeKind::kWaitKernel;
    case kDepbar: return CodeKind::kWaitCopies;
    case kPhaseCheck: return CodeKind::kWaitTurn;
    default: return CodeKind::kOther;
  }
}

// The waiting verbs of the ring, and they alone, read the clock once they have waited. A consumer
// goes on to multiply, a producer to copy.
void TellWaitsApart(std::span<const std::byte> code, std::vector<CodeKind>& kinds) {
  CodeKind next = CodeKind::kWaitTurn;  // what a wait of the ring is, by what follows it
  std::optional<size_t> later;          // check of an mbarrier
  for (size_t i = kinds.size(); i-- > 0;) {
    if (kinds[i] == CodeKind::kTensorMath) next = CodeKind::kWaitFull;
    if (kinds[i] == CodeKind::kCopies) next = CodeKind::kWaitEmpty;
    if (kinds[i] != CodeKind::kWaitTurn) continue;
    const bool probed = (i + 2 < kinds.size() && ReadsClock(code, i + 2)) ||
                        (i + 3 < kinds.size() && ReadsClock(code, i + 3));
    if (probed) {
      kinds[i] = next;
    } else if (later && *later - i <= kChecksOfOneWait) {
      kinds[i] = kinds[*later];
    }
    later = i;
  }
}

bool IsSeenBehind(CodeKind kind) {
  switch (kind) {
    case CodeKind::kWaitFull:
    case CodeKind::kWaitEmpty:
    case CodeKind::kWaitTurn:
    case CodeKind::kWaitKernel:
    case CodeKind::kBlockBarrier: return true;
    default: return false;
  }
}

// A warp is seen at the instruction that it issues next: one that waits on an mbarrier, at the
// branch on what the check said; one that waits at a barrier of the block, behind that.
void IncludeNext(std::vector<CodeKind>& kinds) {
  for (size_t i = kinds.size(); i-- > 1;) {
    if (IsSeenBehind(kinds[i - 1]) && kinds[i] == CodeKind::kOther) kinds[i] = kinds[i - 1];
  }
}

void BridgeGaps(std::vector<CodeKind>& kinds) {
  std::optional<size_t> last;  // that is not kOther
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == CodeKind::kOther) continue;
    if (last && kinds[*last] == kinds[i] && i - *last <= kBridge) {
      for (size_t j = *last + 1; j < i; ++j) kinds[j] = kinds[i];
    }
    last = i;
  }
}

template <typename T>
std::optional<T> ReadAt(std::span<const std::byte> bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::span<const std::byte> Section(std::span<const std::byte> image, const Elf64_Shdr& header) {
  if (header.sh_type == SHT_NOBITS || header.sh_offset > image.size() ||
      image.size() - header.sh_offset < header.sh_size) {
    return {};
  }
  return image.subspan(header.sh_offset, header.sh_size);
}

}  // namespace

std::vector<CodeRange> RangesOf(std::span<const std::byte> code) {
  std::vector<CodeKind> kinds(code.size() / kInstructionBytes);
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i] = KindOf(OpcodeAt(code, i));
  TellWaitsApart(code, kinds);
  IncludeNext(kinds);
  BridgeGaps(kinds);
  std::vector<CodeRange> ranges;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const uint64_t offset = i * kInstructionBytes;
    if (ranges.empty() || ranges.back().kind != kinds[i]) {
      ranges.push_back({.first = offset, .last = offset, .kind = kinds[i]});
    }
    ranges.back().last = offset;
  }
  return ranges;
}

std::map<std::string, std::span<const std::byte>> FunctionsOf(std::span<const std::byte> cubin) {
  constexpr std::string_view kPrefix = ".text.";
  std::map<std::string, std::span<const std::byte>> functions;
  const auto file = ReadAt<Elf64_Ehdr>(cubin, 0);
  if (!file || std::memcmp(file->e_ident, ELFMAG, SELFMAG) != 0 ||
      file->e_ident[EI_CLASS] != ELFCLASS64) {
    return functions;
  }
  const auto header = [&](uint64_t index) {
    return ReadAt<Elf64_Shdr>(cubin, file->e_shoff + index * sizeof(Elf64_Shdr));
  };
  const auto names_header = header(file->e_shstrndx);
  if (!names_header) return functions;
  const std::span<const std::byte> names = Section(cubin, *names_header);
  for (uint64_t i = 0; i < file->e_shnum; ++i) {
    const auto section = header(i);
    if (!section || section->sh_name >= names.size()) continue;
    const auto* const name = reinterpret_cast<const char*>(names.data()) + section->sh_name;
    const std::string_view text(name, strnlen(name, names.size() - section->sh_name));
    if (!text.starts_with(kPrefix)) continue;
    functions.emplace(text.substr(kPrefix.size()), Section(cubin, *section));
  }
  return functions;
}

}  // namespace gemmd
