#include "tests/backend/conformance.h"

namespace gemmd {
namespace {

constexpr BackendChoice kChoice = BackendChoice::kCpu;

std::vector<TypePair> Floats() {
  return {kHalfTypes[0], kHalfTypes[1], kHalfTypes[2], kHalfTypes[3], kSingle, kDouble};
}

std::vector<TypePair> AllTypes() {
  std::vector<TypePair> all = Floats();
  all.push_back(kInt8);
  return all;
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Cpu, RowConformance,
                         ::testing::ValuesIn(RowParams(kChoice, {Family::kBlas})), RowParamName);
INSTANTIATE_TEST_SUITE_P(Cpu, VectorConformance,
                         ::testing::ValuesIn(RowParams(kChoice, {Family::kBlas})), RowParamName);
INSTANTIATE_TEST_SUITE_P(Cpu, ProductConformance,
                         ::testing::ValuesIn(TypeParams(kChoice, AllTypes())), TypeParamName);
INSTANTIATE_TEST_SUITE_P(Cpu, FloatConformance, ::testing::ValuesIn(TypeParams(kChoice, Floats())),
                         TypeParamName);
INSTANTIATE_TEST_SUITE_P(Cpu, Int8Conformance, ::testing::ValuesIn(TypeParams(kChoice, {kInt8})),
                         TypeParamName);
INSTANTIATE_TEST_SUITE_P(Cpu, LaneConformance, ::testing::Values(kChoice), ChoiceName);

}  // namespace gemmd
