#include "kernels/lab/reference.h"

#include <algorithm>
#include <cstddef>
#include <thread>

namespace gemmd::lab {
namespace {

constexpr int kWarpRows = kPanelRows / kWarps;

// Of the rows of one warp. `place`: of their first word in the array.
uint32_t SumOfRows(uint32_t seed, uint32_t place, uint32_t cols, int warp) {
  uint32_t sum = 0;
  for (int row = 0; row < kWarpRows; ++row) {
    const auto first =
        static_cast<uint32_t>((warp * kWarpRows + row) * kPanelRowWords);  // in the panel
    for (uint32_t col = 0; col < kPanelRowWords; ++col) {
      sum += ArrayWord(seed, place + col) * WordFactor(first + col);
    }
    place += cols;
  }
  return sum;
}

void SumStrip(const ArrayShape& shape, uint32_t seed, const Work& work, int strip, uint32_t* sums) {
  const auto cols = static_cast<uint32_t>(shape.cols());
  for (int panel = 0; panel < shape.panels; ++panel) {
    for (int warp = 0; warp < kWarps; ++warp) {
      const auto row = static_cast<uint32_t>(strip * kPanelRows + warp * kWarpRows);
      const uint32_t place = row * cols + static_cast<uint32_t>(panel * kPanelRowWords);
      *sums++ = work.After(SumOfRows(seed, place, cols, warp));
    }
  }
}

}  // namespace

const char* Name(Mechanism mechanism) { return mechanism == Mechanism::kTma ? "tma" : "cp_async"; }

Work::Work(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    factor_ *= kWorkFactor;
    term_ = term_ * kWorkFactor + kWorkTerm;
  }
}

std::vector<uint32_t> PanelSums(const ArrayShape& shape, uint32_t seed, int work, int threads) {
  std::vector<uint32_t> sums(static_cast<size_t>(shape.sums()));
  const Work after(work);
  const size_t of_strip = sums.size() / static_cast<size_t>(shape.strips);
  const auto sum_some = [&](int first) {
    for (int strip = first; strip < shape.strips; strip += threads) {
      SumStrip(shape, seed, after, strip, &sums[static_cast<size_t>(strip) * of_strip]);
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(sum_some, i);
  sum_some(0);
  for (std::thread& other : others) other.join();
  return sums;
}

uint32_t PoisonSum(int warp, int work) {
  uint32_t sum = 0;
  for (int i = 0; i < kWarpWords; ++i) {
    sum += kPoison * WordFactor(static_cast<uint32_t>(warp * kWarpWords + i));
  }
  return Work(work).After(sum);
}

std::vector<WrongSum> WrongSums(const ArrayShape& shape, const std::vector<uint32_t>& expected,
                                const std::vector<uint32_t>& found, int work, size_t explained) {
  std::vector<WrongSum> wrong;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    const auto warp = static_cast<int>(i % kWarps);
    const auto step = static_cast<int>(i / kWarps) % shape.panels;
    const auto block = static_cast<int>(i / kWarps) / shape.panels;
    WrongSum one{
        .block = block, .step = step, .warp = warp, .expected = expected[i], .found = found[i]};
    if (wrong.size() < explained) {
      if (one.found == PoisonSum(warp, work)) one.origin = Origin::kUnfilled;
      for (int from = 0; from < shape.panels; ++from) {
        const auto at = static_cast<size_t>((block * shape.panels + from) * kWarps + warp);
        if (expected[at] != one.found) continue;
        one.origin = Origin::kPanel;
        one.from_step = from;
      }
    }
    wrong.push_back(one);
  }
  return wrong;
}

}  // namespace gemmd::lab
