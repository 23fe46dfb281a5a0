// Requests with random damage: refused with a reason, or decoded into something that is safe to
// run.
#include <array>
#include <chrono>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "gemmd/v1/gemm.pb.h"
#include "server/rpc/codec.h"
#include "tests/support/matrices.h"

namespace gemmd {
namespace {

constexpr int64_t kMaxResultBytes = 1 << 20;

v1::GemmRequest ValidRequest(std::mt19937_64& random) {
  v1::GemmRequest request;
  v1::Problem& p = *request.mutable_problem();
  p.set_m(3);
  p.set_n(5);
  p.set_k(4);
  p.set_batch(2);
  p.set_type_a(v1::DATA_TYPE_F32);
  p.set_beta(random() % 2 == 0 ? 0 : 0.5);
  request.mutable_a()->set_inline_(std::string(2 * 12 * 4, 'a'));
  request.mutable_b()->set_inline_(std::string(2 * 20 * 4, 'b'));
  if (p.beta() != 0) request.mutable_c()->set_inline_(std::string(2 * 15 * 4, 'c'));
  if (random() % 2 == 0) request.mutable_bias()->set_inline_(std::string(5 * 4, 'v'));
  return request;
}

// One number of the request becomes one of those at the edges of what fits.
void Distort(std::mt19937_64& random, v1::GemmRequest* request) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr std::array<int64_t, 12> kEdges = {
      0,        1,    2,     -1,   131072, kMaxExtent, kMaxExtent + 1, int64_t{1} << 62,
      kMax / 2, kMax, -kMax, ~kMax};
  const int64_t value = kEdges[random() % kEdges.size()];
  v1::Problem& p = *request->mutable_problem();
  switch (random() % 12) {
    case 0: return p.set_m(value);
    case 1: return p.set_n(value);
    case 2: return p.set_k(value);
    case 3: return p.set_batch(value);
    case 4: return p.set_alpha(static_cast<double>(value) * 1e-50);
    case 5: return request->mutable_a()->set_ld(value);
    case 6: return request->mutable_b()->set_batch_stride(value);
    case 7: return request->mutable_c()->set_ld(value);
    case 8: return request->mutable_bias()->set_ld(value);
    case 9: return p.set_type_a(static_cast<v1::DataType>(value & 0xf));
    case 10: return p.set_type_d(static_cast<v1::DataType>(value & 0xf));
    default: return request->mutable_plan()->set_stages(static_cast<int32_t>(value));
  }
}

void Damage(std::mt19937_64& random, std::string* bytes) {
  for (uint64_t flips = random() % 4; flips > 0 && !bytes->empty(); --flips) {
    char& byte = (*bytes)[random() % bytes->size()];
    byte = static_cast<char>(static_cast<unsigned char>(byte) ^ 1U << random() % 8);
  }
  if (random() % 8 == 0) bytes->resize(random() % (bytes->size() + 1));
}

void ExpectSafe(const v1::GemmRequest& request, const DecodedGemm& decoded) {
  const GemmProblem& p = decoded.problem;
  EXPECT_TRUE(ValidateProblem(p).ok());
  EXPECT_LE(*ResultBytes(p), kMaxResultBytes);
  const auto inside = [](const std::byte* data, const std::string& bytes, bool read,
                         const MatrixLayout& layout, int64_t batch, DType type) {
    EXPECT_TRUE(data != nullptr || !read);
    if (data == nullptr) return;
    const StatusOr<int64_t> needed = StorageBytes(layout, batch, type, "operand");
    ASSERT_TRUE(needed.ok());
    EXPECT_EQ(reinterpret_cast<const char*>(data), bytes.data());
    EXPECT_EQ(*needed, static_cast<int64_t>(bytes.size()));
  };
  inside(decoded.operands.a, request.a().inline_(), p.reads_ab(), p.a, p.batch, p.type_a);
  inside(decoded.operands.b, request.b().inline_(), p.reads_ab(), p.b, p.batch, p.type_b);
  inside(decoded.operands.c, request.c().inline_(), p.reads_c(), p.c, p.batch, p.type_d);
  const int64_t bias = p.bias_length();
  inside(decoded.operands.bias, request.bias().inline_(), bias > 0, {1, bias, bias, 0}, 1,
         p.type_d);
}

TEST(CodecFuzzTest, DamagedRequestsAreRefusedOrSafe) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937_64 random(seed);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int refused = 0, decoded = 0;
  for (int round = 0; round < 100'000 && std::chrono::steady_clock::now() < limit; ++round) {
    v1::GemmRequest request = ValidRequest(random);
    for (uint64_t i = random() % 3; i > 0; --i) Distort(random, &request);
    std::string bytes = request.SerializeAsString();
    if (random() % 2 == 0) Damage(random, &bytes);
    v1::GemmRequest damaged;
    if (!damaged.ParseFromString(bytes)) continue;
    const StatusOr<DecodedGemm> result = DecodeGemm(damaged, kMaxResultBytes);
    if (!result.ok()) {
      ++refused;
      ASSERT_FALSE(result.status().message().empty()) << "round " << round;
      continue;
    }
    ++decoded;
    ExpectSafe(damaged, *result);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
  }
  EXPECT_GT(refused, 100);  // else nothing was damaged
  EXPECT_GT(decoded, 100);  // else nothing got past the first check
}

}  // namespace
}  // namespace gemmd
