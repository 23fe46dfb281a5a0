// What the landmarks of machine code say of its ranges, on instructions as ptxas writes them.
#include "kernels/cuda/code_map.h"

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <elf.h>
#include <gtest/gtest.h>

namespace gemmd {
namespace {

constexpr uint64_t kStep = 16;  // bytes of an instruction

struct Instruction {
  uint64_t low = 0, high = 0;
};
constexpr Instruction kAdd{0x0000000102037210, 0x000fe20007ffe0ff};
constexpr Instruction kBranch{0x00000000001c1947, 0x000fea0003800000};
constexpr Instruction kReadClock{0x0000000000038805, 0x000fe20000005000};
constexpr Instruction kZeroRegister{0x0000000000607805, 0x000fe2000001ff00};  // CS2R too
constexpr Instruction kCheck{0x00000000ff0075a7, 0x000e64000802004c};
constexpr Instruction kTryWait{0x00000000ff0075a7, 0x000e64000802014c};
constexpr Instruction kHgmma{0x01e00000101879f0, 0x000fe20008700818};
constexpr Instruction kWarpgroupDepbar{0x00008000000079c5, 0x000fe40000000000};
constexpr Instruction kCopyBox{0x00000010060075b4, 0x0001e20008011000};
constexpr Instruction kCopyAsync{0x000000000c17bfae, 0x0005e4000e101d46};
constexpr Instruction kWaitCopies{0x000080000000791a, 0x000fca0000000000};
constexpr Instruction kWaitKernelBefore{0x000000000000782e, 0x000fe20000000000};
constexpr Instruction kBarrier{0x0000000000007b1d, 0x000fec0000010000};
constexpr Instruction kMma{0x000000484430723c, 0x004ff00000041830};

using Code = std::vector<Instruction>;

Code operator+(Code a, const Code& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Code operator*(int count, const Instruction& one) { return Code(static_cast<size_t>(count), one); }

std::vector<CodeRange> Map(const Code& code) { return RangesOf(std::as_bytes(std::span(code))); }

// As the ring's waiting verbs are compiled: a check, and on a miss the clock, waits, the clock.
Code RingWait() { return {kCheck, kBranch, kAdd, kReadClock, kTryWait, kBranch, kReadClock, kAdd}; }

TEST(CodeMap, AWaitBeforeTensorMathIsForAFullStage) {
  const std::vector<CodeRange> ranges =
      Map(20 * kAdd + RingWait() + Code{kHgmma, kAdd, kHgmma, kWarpgroupDepbar});
  EXPECT_EQ(ranges, (std::vector<CodeRange>{
                        {0, 19 * kStep, CodeKind::kOther},
                        {20 * kStep, 25 * kStep, CodeKind::kWaitFull},
                        {26 * kStep, 27 * kStep, CodeKind::kOther},
                        {28 * kStep, 31 * kStep, CodeKind::kTensorMath},
                    }));
}

TEST(CodeMap, AWaitBeforeCopiesIsForAnEmptyStage) {
  const std::vector<CodeRange> ranges = Map(RingWait() + 30 * kAdd + Code{kCopyBox});
  ASSERT_FALSE(ranges.empty());
  EXPECT_EQ(ranges.front(), (CodeRange{0, 5 * kStep, CodeKind::kWaitEmpty}));
  EXPECT_EQ(ranges.back(), (CodeRange{38 * kStep, 38 * kStep, CodeKind::kCopies}));
}

TEST(CodeMap, AWaitThatNoClockFollowsIsForATurn) {
  const std::vector<CodeRange> ranges =
      Map(Code{kCheck, kBranch, kTryWait, kBranch} + Code{kAdd, kZeroRegister} + 20 * kAdd +
          RingWait() + Code{kHgmma});
  ASSERT_GE(ranges.size(), 3U);
  EXPECT_EQ(ranges[0], (CodeRange{0, 3 * kStep, CodeKind::kWaitTurn}));
  EXPECT_EQ(ranges[2].kind, CodeKind::kWaitFull);
}

TEST(CodeMap, KernelsWithoutBarriersInMemoryHaveTheirWaitsToo) {
  const std::vector<CodeRange> ranges =
      Map(Code{kWaitCopies, kBarrier, kCopyAsync, kCopyAsync, kMma, kMma});
  EXPECT_EQ(ranges, (std::vector<CodeRange>{
                        {0, 0, CodeKind::kWaitCopies},
                        {kStep, kStep, CodeKind::kBlockBarrier},
                        {2 * kStep, 3 * kStep, CodeKind::kCopies},
                        {4 * kStep, 5 * kStep, CodeKind::kTensorMath},
                    }));
}

TEST(CodeMap, WhoeverWaitsAtABarrierOrForTheKernelBeforeIsSeenBehindIt) {
  EXPECT_EQ(Map(Code{kBarrier, kAdd, kAdd, kWaitKernelBefore, kAdd, kAdd}),
            (std::vector<CodeRange>{
                {0, kStep, CodeKind::kBlockBarrier},
                {2 * kStep, 2 * kStep, CodeKind::kOther},
                {3 * kStep, 4 * kStep, CodeKind::kWaitKernel},
                {5 * kStep, 5 * kStep, CodeKind::kOther},
            }));
}

TEST(CodeMap, WhatLiesFarApartIsNotOneRange) {
  EXPECT_EQ(Map(Code{kMma} + 15 * kAdd + Code{kMma}).size(), 1U);
  EXPECT_EQ(Map(Code{kMma} + 16 * kAdd + Code{kMma}).size(), 3U);
}

TEST(CodeMap, NoCodeHasNoRanges) {
  EXPECT_TRUE(RangesOf({}).empty());
  const std::vector<std::byte> less(15);
  EXPECT_TRUE(RangesOf(less).empty());
}

// --- Images ---

// An image of one section for each of (name, bytes), and the names'.
std::vector<std::byte> Image(const std::vector<std::pair<std::string, std::string>>& sections) {
  std::string names(1, '\0');
  std::string contents;
  std::vector<Elf64_Shdr> headers(1);
  const auto add = [&](const std::string& name, const std::string& bytes) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<Elf64_Word>(names.size());
    header.sh_type = SHT_PROGBITS;
    header.sh_offset = sizeof(Elf64_Ehdr) + contents.size();
    header.sh_size = bytes.size();
    headers.push_back(header);
    names += name + '\0';
    contents += bytes;
  };
  for (const auto& [name, bytes] : sections) add(name, bytes);
  Elf64_Shdr header{};
  header.sh_type = SHT_STRTAB;
  header.sh_offset = sizeof(Elf64_Ehdr) + contents.size();
  header.sh_size = names.size();
  headers.push_back(header);
  contents += names;
  Elf64_Ehdr file{};
  std::memcpy(file.e_ident, ELFMAG, SELFMAG);
  file.e_ident[EI_CLASS] = ELFCLASS64;
  file.e_shoff = sizeof file + contents.size();
  file.e_shnum = static_cast<Elf64_Half>(headers.size());
  file.e_shstrndx = static_cast<Elf64_Half>(headers.size() - 1);
  std::vector<std::byte> image(file.e_shoff + headers.size() * sizeof(Elf64_Shdr));
  std::memcpy(image.data(), &file, sizeof file);
  std::memcpy(image.data() + sizeof file, contents.data(), contents.size());
  std::memcpy(image.data() + file.e_shoff, headers.data(), headers.size() * sizeof(Elf64_Shdr));
  return image;
}

TEST(CubinFunctions, AreTheCodeSectionsByName) {
  const std::vector<std::byte> image =
      Image({{".text._Z4GemmPf", "0123456789abcdef"}, {".nv.info", "x"}, {".text.g", "yz"}});
  const auto functions = FunctionsOf(image);
  ASSERT_EQ(functions.size(), 2U);
  const auto code = functions.at("_Z4GemmPf");
  ASSERT_EQ(code.size(), 16U);
  EXPECT_EQ(std::memcmp(code.data(), "0123456789abcdef", 16), 0);
  EXPECT_EQ(functions.at("g").size(), 2U);
}

TEST(CubinFunctions, AnImageCutAnywhereIsReadWithinItsBounds) {
  const std::vector<std::byte> image = Image({{".text.f", "0123456789abcdef"}});
  for (size_t size = 0; size < image.size(); ++size) {
    const std::vector<std::byte> cut(image.begin(), image.begin() + static_cast<ptrdiff_t>(size));
    for (const auto& [name, code] : FunctionsOf(cut)) {
      EXPECT_LE(code.data() + code.size(), cut.data() + cut.size()) << size;
    }
  }
}

TEST(CubinFunctions, AnImageWithAWrongByteIsReadWithinItsBounds) {
  const std::vector<std::byte> image = Image({{".text.f", "0123456789abcdef"}});
  for (size_t at = 0; at < image.size(); ++at) {
    std::vector<std::byte> wrong = image;
    wrong[at] = std::byte{0xff};
    for (const auto& [name, code] : FunctionsOf(wrong)) {
      EXPECT_TRUE(code.empty() || (code.data() >= wrong.data() &&
                                   code.data() + code.size() <= wrong.data() + wrong.size()))
          << at;
    }
  }
}

}  // namespace
}  // namespace gemmd
