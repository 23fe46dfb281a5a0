#include "kernels/cpu/cpu_plan_timer.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
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

int64_t StoredElements(const MatrixLayout& layout, int64_t batch) {
  return (batch - 1) * layout.batch_stride + (layout.rows - 1) * layout.ld + layout.cols;
}

class Matrix {
 public:
  // Throws std::bad_alloc. The host gives the memory page by page, as it is written.
  void Allocate(int64_t elements, DType type) {
    type_ = type;
    elements_ = elements;
    data_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes()));
  }

  // With random values, or CANCELLED soon after a request on `stop`.
  Status Fill(const std::stop_token& stop) {
    std::mt19937_64 random(kSeed);
    std::normal_distribution<double> normal;
    const int64_t count = std::min(elements_, kPatternElements);
    for (int64_t i = 0; i < count; ++i) StoreElement(data(), type_, i, normal(random));
    const int64_t filled = count * SizeOf(type_);
    for (int64_t at = filled; at < bytes(); at += filled) {
      if (stop.stop_requested()) return Cancelled("the timer was stopped");
      std::memcpy(data() + at, data(), static_cast<size_t>(std::min(filled, bytes() - at)));
    }
    return OkStatus();
  }

  std::byte* data() const { return data_.get(); }

 private:
  int64_t bytes() const { return elements_ * SizeOf(type_); }

  DType type_{};
  int64_t elements_ = 0;
  std::unique_ptr<std::byte[]> data_;
};

class CpuPlanTimer : public PlanTimer {
 public:
  explicit CpuPlanTimer(const GemmProblem& problem) : problem_(problem) {}

  // Throws std::bad_alloc.
  void Allocate() {
    const GemmProblem& p = problem_;
    if (p.reads_ab()) {
      a_.Allocate(StoredElements(p.a, p.batch), p.type_a);
      b_.Allocate(StoredElements(p.b, p.batch), p.type_b);
    }
    if (p.reads_c()) c_.Allocate(StoredElements(p.c, p.batch), p.type_d);
    bias_.Allocate(p.bias_length(), p.type_d);
    d_.Allocate(p.m * p.n * p.batch, p.type_d);
  }

  // All plans of a CPU are the same one: what is timed is the product.
  StatusOr<std::vector<PlanTiming>> Time(std::span<const Plan> plans, const TimingOptions& options,
                                         std::stop_token stop) override {
    RETURN_IF_ERROR(Fill(stop));
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

  // The operands, before they are first read.
  Status Fill(const std::stop_token& stop) {
    if (filled_) return OkStatus();
    for (Matrix* matrix : {&a_, &b_, &c_, &bias_}) RETURN_IF_ERROR(matrix->Fill(stop));
    filled_ = true;
    return OkStatus();
  }

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
  Matrix a_, b_, c_, bias_, d_;
  bool filled_ = false;
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
