#include "tests/bench/result_check.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <thread>

namespace gemmd::bench {
namespace {

constexpr int64_t kMaxTerms = int64_t{1} << 27;
constexpr int64_t kSampleRows = 256;
constexpr int64_t kSampleCols = 64;

std::vector<int64_t> PickIndices(int64_t extent, int64_t count, std::mt19937_64& random) {
  if (extent <= count) {
    std::vector<int64_t> all(static_cast<size_t>(extent));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::set<int64_t> picked = {0, extent - 1};
  std::uniform_int_distribution<int64_t> any(0, extent - 1);
  while (static_cast<int64_t>(picked.size()) < count) picked.insert(any(random));
  return {picked.begin(), picked.end()};
}

// Lines `picked` of op(X) as stored in `layout`: rows of it, or columns.
std::vector<std::byte> Gather(const std::byte* base, const MatrixLayout& layout, int64_t size,
                              const std::vector<int64_t>& picked, bool rows) {
  const auto count = static_cast<int64_t>(picked.size());
  const auto width = static_cast<size_t>(size);
  if (rows) {
    std::vector<std::byte> out(static_cast<size_t>(count * layout.cols * size));
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out.data() + i * layout.cols * size,
                  base + picked[static_cast<size_t>(i)] * layout.ld * size,
                  static_cast<size_t>(layout.cols * size));
    }
    return out;
  }
  std::vector<std::byte> out(static_cast<size_t>(count * layout.rows * size));
  for (int64_t row = 0; row < layout.rows; ++row) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out.data() + (row * count + i) * size,
                  base + (row * layout.ld + picked[static_cast<size_t>(i)]) * size, width);
    }
  }
  return out;
}

void Merge(const Mismatch& part, Mismatch& whole) {
  const int64_t elements = whole.elements + part.elements;
  const int64_t wrong = whole.wrong_elements + part.wrong_elements;
  const double worst = std::max(whole.worst_ratio, part.worst_ratio);
  if (whole.ok && !part.ok) whole = part;
  whole.elements = elements;
  whole.wrong_elements = wrong;
  whole.worst_ratio = worst;
}

}  // namespace

Sample PickSample(const GemmProblem& p, uint64_t seed) {
  std::mt19937_64 random(seed);
  const double terms = p.flops() / 2;
  const bool all = terms <= static_cast<double>(kMaxTerms);
  Sample sample;
  sample.rows = PickIndices(p.m, all ? p.m : kSampleRows, random);
  sample.cols = PickIndices(p.n, all ? p.n : kSampleCols, random);
  return sample;
}

SampledReference::SampledReference(const GemmProblem& problem, Sample sample, const std::byte* a,
                                   const std::byte* b)
    : problem_(problem), sample_(std::move(sample)) {
  // The sampled lines stay as they are stored: rows of A with op N are columns with op T.
  a_ = Gather(a, problem.a, SizeOf(problem.type_a), sample_.rows, problem.op_a == Op::kN);
  b_ = Gather(b, problem.b, SizeOf(problem.type_b), sample_.cols, problem.op_b == Op::kT);
}

Mismatch SampledReference::CompareRows(const std::byte* d, size_t first, size_t count) const {
  const auto all_rows = static_cast<int64_t>(sample_.rows.size());
  const auto first_row = static_cast<int64_t>(first);
  const auto cols = static_cast<int64_t>(sample_.cols.size());
  const int64_t size_d = SizeOf(problem_.type_d);
  GemmProblem part = problem_;
  part.m = static_cast<int64_t>(count);
  part.n = cols;
  part = WithPackedLayouts(part);
  int64_t a_offset = first_row * problem_.k;
  if (problem_.op_a == Op::kT) {
    part.a.ld = all_rows;
    a_offset = first_row;
  }
  std::vector<std::byte> picked(static_cast<size_t>(part.m * cols * size_d));
  for (int64_t row = 0; row < part.m; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t from = (first_row + row) * problem_.n + sample_.cols[static_cast<size_t>(col)];
      std::memcpy(picked.data() + (row * cols + col) * size_d, d + from * size_d,
                  static_cast<size_t>(size_d));
    }
  }
  HostOperands operands;
  operands.a = a_.data() + a_offset * SizeOf(problem_.type_a);
  operands.b = b_.data();
  operands.d = picked.data();
  Mismatch mismatch = CompareWithReference(part, operands);
  if (!mismatch.ok) {
    mismatch.row = sample_.rows[static_cast<size_t>(first_row + mismatch.row)];
    mismatch.col = sample_.cols[static_cast<size_t>(mismatch.col)];
    mismatch.first_wrong = mismatch.row * problem_.n + mismatch.col;
  }
  return mismatch;
}

Mismatch SampledReference::Compare(const std::byte* d) const {
  const size_t rows = sample_.rows.size();
  const size_t workers = std::min<size_t>(rows, std::max(1U, std::thread::hardware_concurrency()));
  std::vector<Mismatch> parts(workers);  // part i is written by thread i alone
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers; ++i) {
    const size_t first = rows * i / workers, last = rows * (i + 1) / workers;
    threads.emplace_back(
        [this, d, first, last, &part = parts[i]] { part = CompareRows(d, first, last - first); });
  }
  for (std::thread& thread : threads) thread.join();
  Mismatch whole;
  for (const Mismatch& part : parts) Merge(part, whole);
  return whole;
}

}  // namespace gemmd::bench
