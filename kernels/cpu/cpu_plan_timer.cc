#include "kernels/cpu/cpu_plan_timer.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "kernels/core/numeric.h"
#include "kernels/core/quantile.h"
#include "kernels/cpu/cpu_gemm.h"

namespace gemmd {
namespace {

constexpr int64_t kPatternElements = 65521;  // a prime: no row length makes rows repeat early
constexpr uint64_t kSeed = 1;                // of values whose times are asked for, not their sum

using Clock = std::chrono::steady_clock;

std::vector<std::byte> RandomMatrix(int64_t elements, DType type) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<double> normal;
  std::vector<std::byte> out(static_cast<size_t>(elements * SizeOf(type)));
  const int64_t count = std::min(elements, kPatternElements);
  for (int64_t i = 0; i < count; ++i) StoreElement(out.data(), type, i, normal(random));
  const auto filled = static_cast<size_t>(count * SizeOf(type));
  for (size_t at = filled; at < out.size(); ++at) out[at] = out[at - filled];
  return out;
}

int64_t StoredElements(const MatrixLayout& layout, int64_t batch) {
  return (batch - 1) * layout.batch_stride + (layout.rows - 1) * layout.ld + layout.cols;
}

class CpuPlanTimer : public PlanTimer {
 public:
  explicit CpuPlanTimer(const GemmProblem& problem) : problem_(problem) {}

  // Throws std::bad_alloc.
  void Allocate() {
    const GemmProblem& p = problem_;
    if (p.reads_ab()) {
      a_ = RandomMatrix(StoredElements(p.a, p.batch), p.type_a);
      b_ = RandomMatrix(StoredElements(p.b, p.batch), p.type_b);
    }
    if (p.reads_c()) c_ = RandomMatrix(StoredElements(p.c, p.batch), p.type_d);
    bias_ = RandomMatrix(p.bias_length(), p.type_d);
    d_.resize(static_cast<size_t>(p.m * p.n * p.batch * SizeOf(p.type_d)));
  }

  // All plans of a CPU are the same one: what is timed is the product.
  StatusOr<std::vector<PlanTiming>> Time(std::span<const Plan> plans, const TimingOptions& options,
                                         std::stop_token stop) override {
    ASSIGN_OR_RETURN(const double warm, SecondsOf(1, stop));
    const double wanted = options.sample_seconds / std::max(warm, 1e-9);
    const int launches = static_cast<int>(std::clamp(wanted, 1.0, kMostLaunches));
    std::vector<std::vector<double>> samples(plans.size());
    for (int round = 0; round < options.rounds; ++round) {
      for (std::vector<double>& of_plan : samples) {
        ASSIGN_OR_RETURN(const double seconds, SecondsOf(launches, stop));
        of_plan.push_back(seconds);
      }
    }
    std::vector<PlanTiming> timings;
    for (std::vector<double>& of_plan : samples) {
      std::sort(of_plan.begin(), of_plan.end());
      timings.push_back({.median_seconds = Quantile(of_plan, 0.5),
                         .p5_seconds = Quantile(of_plan, 0.05),
                         .p95_seconds = Quantile(of_plan, 0.95),
                         .stalls = {}});
    }
    return timings;
  }

 private:
  static constexpr double kMostLaunches = 1000;  // of a sample

  // Of one launch.
  StatusOr<double> SecondsOf(int launches, const std::stop_token& stop) {
    const HostOperands operands = {
        .a = a_.data(), .b = b_.data(), .c = c_.data(), .bias = bias_.data(), .d = d_.data()};
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < launches; ++i) RETURN_IF_ERROR(gemm_.Run(problem_, operands, stop));
    return std::chrono::duration<double>(Clock::now() - start).count() / launches;
  }

  const GemmProblem problem_;
  CpuGemm gemm_;
  std::vector<std::byte> a_, b_, c_, bias_, d_;
};

}  // namespace

StatusOr<std::unique_ptr<PlanTimer>> MakeCpuPlanTimer(const GemmProblem& problem) {
  auto timer = std::make_unique<CpuPlanTimer>(problem);
  try {
    timer->Allocate();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(ToString(problem) + " finds no memory on this host for its operands");
  }
  return std::unique_ptr<PlanTimer>(std::move(timer));
}

}  // namespace gemmd
