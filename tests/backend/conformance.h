// One suite for every backend. The rules are in *_conformance.cc; a program takes them for its
// backend by instantiating the suites (cpu_conformance_test.cc, cuda_conformance_test.cc).
#pragma once

#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "kernels/plan/planner.h"
#include "tests/support/matrices.h"

namespace gemmd {

struct TypePair {
  DType ab, d;
};
std::string Name(TypePair types);  // "f16_f32"

inline constexpr TypePair kHalfTypes[] = {{DType::kF16, DType::kF16},
                                          {DType::kF16, DType::kF32},
                                          {DType::kBF16, DType::kBF16},
                                          {DType::kBF16, DType::kF32}};
inline constexpr TypePair kSingle = {DType::kF32, DType::kF32};
inline constexpr TypePair kDouble = {DType::kF64, DType::kF64};
inline constexpr TypePair kInt8 = {DType::kI8, DType::kI32};

struct EpilogueCase {
  double alpha = 1, beta = 0;
  BiasAxis bias = BiasAxis::kNone;
  Activation act = Activation::kNone;
};
// Those that the type takes; the first is the plain product.
std::vector<EpilogueCase> EpiloguesFor(DType ab);

struct Transposes {
  Op a, b;
};
inline constexpr Transposes kAllTransposes[] = {
    {Op::kN, Op::kN}, {Op::kN, Op::kT}, {Op::kT, Op::kN}, {Op::kT, Op::kT}};
inline constexpr Transposes kNN = kAllTransposes[0];

// Packed, batch 1.
GemmProblem MakeProblem(TypePair types, Transposes ops, int64_t m, int64_t n, int64_t k,
                        EpilogueCase epilogue = {});
// With `pad` elements after each row and matrix of A, B and C.
GemmProblem WithPadding(GemmProblem problem, int64_t pad);

inline constexpr int kSuiteLanes = 8;

// Skips every test, with the reason, where the backend cannot be made.
class ConformanceTest : public ::testing::Test {
 protected:
  void Use(BackendChoice choice);
  // Takes a backend of the test's own instead.
  void Use(std::unique_ptr<Backend> own);

  Backend& backend() { return *backend_; }
  const Planner& planner() const { return *planner_; }

  // Plans, runs on a lane and waits.
  LaneResult Run(const GemmProblem& problem, const HostOperands& operands,
                 const PlanConstraints& constraints = {}, std::stop_token stop = {});
  LaneResult Run(GemmData& data, const PlanConstraints& constraints = {}) {
    return Run(data.problem(), data.operands(), constraints);
  }
  LaneResult RunPlan(const GemmProblem& problem, const HostOperands& operands, const Plan& plan,
                     std::stop_token stop = {});
  // Runs and compares every element with the reference, and the guard bands.
  void Check(GemmData& data, const PlanConstraints& constraints = {});
  void Check(const GemmProblem& problem, uint64_t seed, const PlanConstraints& constraints = {});
  void CheckPlan(const GemmProblem& problem, uint64_t seed, const Plan& plan);

  // Runs all at once, as many as there are lanes, in order of the vector.
  void RunConcurrently(const std::vector<GemmData*>& work);

 private:
  void ExpectRight(GemmData& data, const LaneResult& result);

  std::unique_ptr<Backend> own_;
  Backend* backend_ = nullptr;  // own_, or one that lives as long as the process
  std::optional<Planner> planner_;
};

// A row of the kernel table at a stage count; 0 stages for a row without a ring.
struct RowParam {
  BackendChoice choice;
  int row = 0;
  int stages = 0;
};
void PrintTo(const RowParam& param, std::ostream* out);  // "cp_async_64x64x64_s3"
std::string RowParamName(const ::testing::TestParamInfo<RowParam>& info);
// All rows of the families and, for each, 1 .. max_stages.
std::vector<RowParam> RowParams(BackendChoice choice, const std::vector<Family>& families);

class RowConformance : public ConformanceTest, public ::testing::WithParamInterface<RowParam> {
 protected:
  void SetUp() override;  // skips a stage count that does not fit the device

  const KernelConfig& config() const { return kKernelTable[GetParam().row].config; }
  PlanConstraints constraints() const;
  std::vector<TypePair> types() const;
  // Extents around which the kernel changes its path; for a row without tiles, common ones.
  int64_t tile_m() const { return config().block_m > 0 ? config().block_m : 64; }
  int64_t tile_n() const { return config().block_n > 0 ? config().block_n : 64; }
  int64_t tile_k() const { return config().block_k > 0 ? config().block_k : 64; }
};

// Takes the cases of a list in turn, so that a long loop meets them all without multiplying. Lists
// and loops whose lengths have no common divisor meet in all pairs.
template <typename List>
auto Turn(const List& list, size_t turn) {
  return list[turn % std::size(list)];
}

// Rules of a row that takes products with few rows or few columns.
class VectorConformance : public RowConformance {};

struct TypeParam {
  BackendChoice choice;
  TypePair types;
};
std::vector<TypeParam> TypeParams(BackendChoice choice, const std::vector<TypePair>& types);
void PrintTo(const TypeParam& param, std::ostream* out);  // "f16_f32"
std::string TypeParamName(const ::testing::TestParamInfo<TypeParam>& info);

// Rules of a product, on whatever plan the planner chooses.
class ProductConformance : public ConformanceTest, public ::testing::WithParamInterface<TypeParam> {
 protected:
  void SetUp() override { Use(GetParam().choice); }
  TypePair types() const { return GetParam().types; }
  bool floating() const { return types().ab != DType::kI8; }
};

class FloatConformance : public ProductConformance {};
class Int8Conformance : public ProductConformance {};

// Rules of a backend as a whole: lanes, memory, concurrency.
class LaneConformance : public ConformanceTest,
                        public ::testing::WithParamInterface<BackendChoice> {
 protected:
  void SetUp() override { Use(GetParam()); }
};
void PrintTo(BackendChoice choice, std::ostream* out);  // "cuda"
std::string ChoiceName(const ::testing::TestParamInfo<BackendChoice>& info);

}  // namespace gemmd
