#include "tests/backend/conformance.h"

#include <iterator>
#include <map>
#include <utility>

#include "kernels/core/mutex.h"
#include "kernels/core/reference_gemm.h"

namespace gemmd {
namespace {

struct Shared {
  std::unique_ptr<Backend> backend;  // null: why says so
  std::string why;
};

Shared Make(BackendChoice choice) {
  StatusOr<BackendSet> set =
      MakeBackends({.choice = choice, .devices = {}, .lanes = kSuiteLanes, .self_check = false});
  if (!set.ok()) return {nullptr, set.status().ToString()};
  return {std::move(set->backends.front()), ""};
}

// Made once a process: a device context takes longer than most tests.
Shared& SharedBackend(BackendChoice choice) {
  static std::map<BackendChoice, Shared> shared;
  const auto found = shared.find(choice);
  return found != shared.end() ? found->second : shared.emplace(choice, Make(choice)).first->second;
}

// Counts results as they arrive on the backend's threads.
class Collector {
 public:
  Lane::Done Slot(std::optional<LaneLease> lane, std::optional<LaneResult>* result) {
    auto held = std::make_shared<std::optional<LaneLease>>(std::move(lane));
    return [this, held, result](LaneResult got) {
      held->reset();
      MutexLock lock(mu_);
      *result = std::move(got);
      --pending_;
      changed_.NotifyAll();
    };
  }
  void Add() {
    MutexLock lock(mu_);
    ++pending_;
  }
  void Drop() {
    MutexLock lock(mu_);
    --pending_;
  }
  void WaitUntilPendingIs(int most) {
    MutexLock lock(mu_);
    while (pending_ > most) changed_.Wait(mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int pending_ GUARDED_BY(mu_) = 0;
};

// Nothing of a launch that ended well is dropped: its K tiles are exactly those that were expected.
void ExpectStallsKept(const Plan& plan, const LaneResult& result) {
  EXPECT_FALSE(result.stalls.dropped) << ToString(plan);
  if (!result.status.ok()) return;
  EXPECT_EQ(result.stalls.measured, plan.stages > 0) << ToString(plan);
}

}  // namespace

std::string Name(TypePair types) {
  return std::string(Name(types.ab)) + "_" + std::string(Name(types.d));
}

std::vector<EpilogueCase> EpiloguesFor(DType ab) {
  if (ab == DType::kI8) return {{}, {.act = Activation::kRelu}};
  return {{},
          {.alpha = 0.5, .beta = 2},
          {.act = Activation::kRelu},
          {.bias = BiasAxis::kPerColumn, .act = Activation::kGelu},
          {.alpha = -1.25, .beta = 1, .bias = BiasAxis::kPerRow, .act = Activation::kSilu}};
}

GemmProblem MakeProblem(TypePair types, Transposes ops, int64_t m, int64_t n, int64_t k,
                        EpilogueCase epilogue) {
  GemmProblem p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.op_a = ops.a;
  p.op_b = ops.b;
  p.type_a = p.type_b = types.ab;
  p.type_d = types.d;
  p.alpha = epilogue.alpha;
  p.beta = epilogue.beta;
  p.bias = epilogue.bias;
  p.act = epilogue.act;
  return WithPackedLayouts(p);
}

GemmProblem WithPadding(GemmProblem problem, int64_t pad) {
  problem.a = Padded(problem.a, pad);
  problem.b = Padded(problem.b, pad);
  problem.c = Padded(problem.c, pad);
  return problem;
}

void ConformanceTest::Use(BackendChoice choice) {
  const Shared& shared = SharedBackend(choice);
  if (shared.backend == nullptr) GTEST_SKIP() << shared.why;
  backend_ = shared.backend.get();
  planner_.emplace(backend_->traits());
}

void ConformanceTest::Use(std::unique_ptr<Backend> own) {
  own_ = std::move(own);
  backend_ = own_.get();
  planner_.emplace(backend_->traits());
}

LaneResult ConformanceTest::Run(const GemmProblem& problem, const HostOperands& operands,
                                const PlanConstraints& constraints, std::stop_token stop) {
  const auto failed = [](Status status) { return LaneResult{std::move(status), {}, {}}; };
  if (Status status = ValidateProblem(problem); !status.ok()) return failed(std::move(status));
  if (Status status = backend_->CheckFits(problem); !status.ok()) return failed(std::move(status));
  const StatusOr<Plan> plan = planner_->PlanFor(problem, constraints);
  if (!plan.ok()) return failed(plan.status());
  return RunPlan(problem, operands, *plan, std::move(stop));
}

LaneResult ConformanceTest::RunPlan(const GemmProblem& problem, const HostOperands& operands,
                                    const Plan& plan, std::stop_token stop) {
  const auto failed = [](Status status) { return LaneResult{std::move(status), {}, {}}; };
  std::optional<LaneLease> lane = backend_->TryAcquireLane(problem);
  if (!lane) return failed(Internal("no free lane"));
  Collector collector;
  std::optional<LaneResult> result;
  collector.Add();
  const Status submitted = (*lane)->Submit(problem, plan, operands,
                                           collector.Slot(std::nullopt, &result), std::move(stop));
  if (!submitted.ok()) return failed(submitted);
  collector.WaitUntilPendingIs(0);
  ExpectStallsKept(plan, *result);
  return *std::move(result);
}

void ConformanceTest::Check(GemmData& data, const PlanConstraints& constraints) {
  SCOPED_TRACE(ToString(data.problem()));
  ExpectRight(data, Run(data, constraints));
}

void ConformanceTest::CheckPlan(const GemmProblem& problem, uint64_t seed, const Plan& plan) {
  SCOPED_TRACE(SeedTrace(seed));
  SCOPED_TRACE(ToString(problem) + " on " + ToString(plan));
  GemmData data(problem, seed);
  ExpectRight(data, RunPlan(problem, data.operands(), plan));
}

void ConformanceTest::ExpectRight(GemmData& data, const LaneResult& result) {
  ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  const Mismatch mismatch = CompareWithReference(data.problem(), data.operands());
  EXPECT_TRUE(mismatch.ok) << mismatch.ToString();
  EXPECT_TRUE(data.GuardsIntact());
}

void ConformanceTest::Check(const GemmProblem& problem, uint64_t seed,
                            const PlanConstraints& constraints) {
  SCOPED_TRACE(SeedTrace(seed));
  GemmData data(problem, seed);
  Check(data, constraints);
}

void ConformanceTest::RunConcurrently(const std::vector<GemmData*>& work) {
  std::vector<std::optional<LaneResult>> results(work.size());
  std::vector<Plan> plans(work.size());
  Collector collector;
  for (size_t i = 0; i < work.size(); ++i) {
    const GemmProblem& problem = work[i]->problem();
    const StatusOr<Plan> plan = planner_->PlanFor(problem);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    plans[i] = *plan;
    std::optional<LaneLease> lane = backend_->TryAcquireLane(problem);
    for (int most = kSuiteLanes - 1; !lane && most >= 0; --most) {
      collector.WaitUntilPendingIs(most);
      lane = backend_->TryAcquireLane(problem);
    }
    ASSERT_TRUE(lane) << "no free lane for " << ToString(problem);
    Lane* const target = lane->operator->();
    collector.Add();
    const Status submitted = target->Submit(problem, *plan, work[i]->operands(),
                                            collector.Slot(std::move(lane), &results[i]), {});
    if (!submitted.ok()) {
      collector.Drop();
      ADD_FAILURE() << submitted.ToString();
    }
  }
  collector.WaitUntilPendingIs(0);
  for (size_t i = 0; i < results.size(); ++i) {
    const std::optional<LaneResult>& result = results[i];
    const Status status = result ? result->status : Internal("never ran");
    EXPECT_TRUE(status.ok()) << status.ToString();
    if (result) ExpectStallsKept(plans[i], *result);
  }
}

void PrintTo(const RowParam& param, std::ostream* out) {
  *out << kKernelTable[param.row].name;
  if (param.stages > 0) *out << "_s" << param.stages;
}

std::string RowParamName(const ::testing::TestParamInfo<RowParam>& info) {
  return ::testing::PrintToString(info.param);
}

std::vector<RowParam> RowParams(BackendChoice choice, const std::vector<Family>& families) {
  std::vector<RowParam> params;
  for (const Family family : families) {
    for (int row = 0; row < kKernelRows; ++row) {
      const KernelConfig& config = kKernelTable[row].config;
      if (config.family != family) continue;
      const int first = config.max_stages == 0 ? 0 : 1;
      for (int stages = first; stages <= config.max_stages; ++stages) {
        params.push_back({choice, row, stages});
      }
    }
  }
  return params;
}

void RowConformance::SetUp() {
  Use(GetParam().choice);
  if (IsSkipped() || GetParam().stages == 0) return;
  if (ResidentBlocks(config(), GetParam().stages, backend().traits()) == 0) {
    GTEST_SKIP() << SmemBytes(config(), GetParam().stages) << " bytes of shared memory exceed the "
                 << backend().traits().smem_per_block_bytes << " of " << backend().traits().name;
  }
}

PlanConstraints RowConformance::constraints() const {
  PlanConstraints constraints;
  constraints.row = GetParam().row;
  if (GetParam().stages > 0) constraints.stages = GetParam().stages;
  return constraints;
}

std::vector<TypePair> RowConformance::types() const {
  std::vector<TypePair> taken;
  std::vector<TypePair> all(std::begin(kHalfTypes), std::end(kHalfTypes));
  all.insert(all.end(), {kSingle, kDouble, kInt8});
  for (const TypePair pair : all) {
    const GemmProblem problem = MakeProblem(pair, kAllTransposes[0], 1, 1, 1);
    if (TakesTypes(config(), problem, planner().traits())) taken.push_back(pair);
  }
  return taken;
}

std::vector<TypeParam> TypeParams(BackendChoice choice, const std::vector<TypePair>& types) {
  std::vector<TypeParam> params;
  for (const TypePair pair : types) params.push_back({choice, pair});
  return params;
}

void PrintTo(BackendChoice choice, std::ostream* out) {
  *out << (choice == BackendChoice::kCuda ? "cuda" : "cpu");
}

std::string ChoiceName(const ::testing::TestParamInfo<BackendChoice>& info) {
  return ::testing::PrintToString(info.param);
}

void PrintTo(const TypeParam& param, std::ostream* out) { *out << Name(param.types); }

std::string TypeParamName(const ::testing::TestParamInfo<TypeParam>& info) {
  return ::testing::PrintToString(info.param);
}

}  // namespace gemmd
