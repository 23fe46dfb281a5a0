#include "server/tuning/traffic.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace gemmd {
namespace {

auto Fields(const MatrixLayout& layout) {
  return std::tie(layout.rows, layout.cols, layout.ld, layout.batch_stride);
}

auto Fields(const GemmProblem& p) {
  return std::tuple_cat(std::tie(p.m, p.n, p.k, p.batch, p.op_a, p.op_b, p.type_a, p.type_b,
                                 p.type_d, p.mode, p.alpha, p.beta, p.bias, p.act, p.deterministic),
                        Fields(p.a), Fields(p.b), Fields(p.c));
}

GemmProblem WithPlainScalars(GemmProblem problem) {
  problem.alpha = problem.is_zero(problem.alpha) ? 0 : 1;
  problem.beta = problem.is_zero(problem.beta) ? 0 : 1;
  return problem;
}

}  // namespace

bool ProblemLess::operator()(const GemmProblem& x, const GemmProblem& y) const {
  return Fields(x) < Fields(y);
}

void Traffic::Admitted(const GemmRequest&) {
  if (unfinished_.fetch_add(1, std::memory_order_acq_rel) == 0) Notify();
}

void Traffic::Completed(const GemmRequest& request, const GemmResult& result) {
  if (result.status.ok() && !request.problem.empty() && !request.constraints.any()) {
    Record(WithPlainScalars(request.problem));
  }
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) Notify();
}

void Traffic::Record(const GemmProblem& problem) {
  MutexLock lock(mu_);
  const auto found = served_.find(problem);
  if (found != served_.end()) {
    ++found->second;
    return;
  }
  if (served_.size() == kMaxProblems) DropRarerHalf();
  served_.emplace(problem, 1);
}

void Traffic::DropRarerHalf() {
  std::vector<int64_t> counts;
  for (const auto& [problem, count] : served_) counts.push_back(count);
  const auto middle = counts.begin() + static_cast<std::ptrdiff_t>(counts.size() / 2);
  std::nth_element(counts.begin(), middle, counts.end());
  const int64_t median = *middle;
  // Those of the median's own count go only as far as half of all does.
  size_t left = served_.size() / 2;
  left -= std::min(
      left, std::erase_if(served_, [median](const auto& entry) { return entry.second < median; }));
  for (auto it = served_.begin(); it != served_.end() && left > 0;) {
    if (it->second == median) {
      it = served_.erase(it);
      --left;
    } else {
      ++it;
    }
  }
}

std::vector<GemmProblem> Traffic::MostServed() const {
  std::vector<std::pair<int64_t, GemmProblem>> counted;
  {
    MutexLock lock(mu_);
    for (const auto& [problem, count] : served_) counted.emplace_back(count, problem);
  }
  std::stable_sort(counted.begin(), counted.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  std::vector<GemmProblem> out;
  for (auto& [count, problem] : counted) out.push_back(problem);
  return out;
}

void Traffic::SetListener(std::function<void()> listener) {
  MutexLock lock(listener_mu_);
  listener_ = std::move(listener);
}

void Traffic::Notify() {
  MutexLock lock(listener_mu_);
  if (listener_) listener_();
}

}  // namespace gemmd
