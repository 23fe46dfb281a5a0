// Where there is no usable device every test is skipped with the driver's reason.
#include "tests/backend/conformance.h"

namespace gemmd {
namespace {

constexpr BackendChoice kCuda = BackendChoice::kCuda;

std::vector<TypePair> CudaFloats() {
  return {kHalfTypes[0], kHalfTypes[1], kHalfTypes[2], kHalfTypes[3], kSingle};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Cuda, RowConformance,
                         ::testing::ValuesIn(RowParams(kCuda,
                                                       {Family::kCpAsyncMma, Family::kCpAsyncSimt,
                                                        Family::kTmaWgmma})),
                         RowParamName);
INSTANTIATE_TEST_SUITE_P(Cuda, VectorConformance,
                         ::testing::ValuesIn(RowParams(kCuda, {Family::kGemv})), RowParamName);
INSTANTIATE_TEST_SUITE_P(Cuda, ProductConformance,
                         ::testing::ValuesIn(TypeParams(kCuda, CudaFloats())), TypeParamName);
INSTANTIATE_TEST_SUITE_P(Cuda, FloatConformance,
                         ::testing::ValuesIn(TypeParams(kCuda, CudaFloats())), TypeParamName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int8Conformance);  // there is no such kernel
INSTANTIATE_TEST_SUITE_P(Cuda, LaneConformance, ::testing::Values(kCuda), ChoiceName);

}  // namespace gemmd
