// What happens before a server takes requests: the choice of a backend and the proof of its
// kernels.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "kernels/backend_factory.h"
#include "kernels/self_check.h"

namespace gemmd {
namespace {

StatusOr<BackendSet> MakeCpu(bool self_check) {
  return MakeBackends(
      {.choice = BackendChoice::kCpu, .devices = {}, .lanes = 2, .self_check = self_check});
}

// Changes one bit of the first element of each result of the chosen kind.
class WrongBackend : public Backend {
 public:
  using Chooses = std::function<bool(const GemmProblem&)>;

  WrongBackend(Backend& inner, Chooses chooses) : inner_(inner), lane_(std::move(chooses)) {}

  std::string_view name() const override { return inner_.name(); }
  const DeviceTraits& traits() const override { return inner_.traits(); }
  Status CheckFits(const GemmProblem& problem) const override { return inner_.CheckFits(problem); }
  std::optional<LaneLease> TryAcquireLane(const GemmProblem& problem) override {
    lane_.inner = inner_.TryAcquireLane(problem);
    return LaneLease(&lane_, [this](Lane*) { lane_.inner.reset(); });
  }
  StatusOr<std::unique_ptr<PlanTimer>> MakePlanTimer(const GemmProblem& problem) override {
    return inner_.MakePlanTimer(problem);
  }
  StatusOr<Calibration> Calibrate(std::stop_token stop) override {
    return inner_.Calibrate(std::move(stop));
  }
  void SetReleaseListener(std::function<void()>) override {}
  bool healthy() const override { return true; }
  BackendUsage usage() const override { return inner_.usage(); }

 private:
  struct WrongLane : Lane {
    explicit WrongLane(Chooses wrong_for) : chooses(std::move(wrong_for)) {}
    int index() const override { return 0; }
    Status Submit(const GemmProblem& problem, const Plan& plan, const HostOperands& operands,
                  Done done, std::stop_token stop) override {
      const bool wrong = chooses(problem);
      return (*inner)->Submit(
          problem, plan, operands,
          [wrong, d = operands.d, done = std::move(done),
           last = SizeOf(problem.type_d) - 1](LaneResult result) {
            // The sign, or the high bit of an integer.
            if (wrong) d[last] ^= std::byte{0x80};
            done(std::move(result));
          },
          std::move(stop));
    }
    Chooses chooses;
    std::optional<LaneLease> inner;
  };

  Backend& inner_;
  WrongLane lane_;
};

TEST(SelfCheckTest, PassesOnARightBackend) {
  const StatusOr<BackendSet> set = MakeCpu(/*self_check=*/true);
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  EXPECT_EQ(set->backends.size(), 1u);
  EXPECT_EQ(set->backends.front()->name(), "cpu");
}

TEST(SelfCheckTest, RefusesABackendThatIsWrongForOneKindOfProblem) {
  StatusOr<BackendSet> set = MakeCpu(/*self_check=*/false);
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  const std::pair<std::string, WrongBackend::Chooses> kinds[] = {
      {"f16", [](const GemmProblem& p) { return p.type_d == DType::kF16; }},
      {"bf16", [](const GemmProblem& p) { return p.type_a == DType::kBF16; }},
      {"f64", [](const GemmProblem& p) { return p.type_a == DType::kF64; }},
      {"i8", [](const GemmProblem& p) { return p.type_a == DType::kI8 && p.k > 0; }},
      {"TT", [](const GemmProblem& p) { return p.op_a == Op::kT && p.op_b == Op::kT; }},
      {"TN", [](const GemmProblem& p) { return p.bias == BiasAxis::kPerColumn && p.k > 100; }},
      {"", [](const GemmProblem& p) { return p.beta != 0 && p.alpha == 0; }},
  };
  for (const auto& [named, chooses] : kinds) {
    WrongBackend wrong(*set->backends.front(), chooses);
    const Status status = SelfCheck(wrong);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << named << ": " << status.ToString();
    EXPECT_NE(status.message().find(named), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("openblas"), std::string::npos) << status.message();
  }
}

TEST(BackendFactoryTest, RefusesOptionsOutOfRange) {
  for (const int lanes : {0, -1, 65}) {
    const Status status =
        MakeBackends({.choice = BackendChoice::kCpu, .devices = {}, .lanes = lanes}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), "lanes");
    EXPECT_NE(status.message().find("64"), std::string::npos) << status.message();
  }
  EXPECT_EQ(MakeBackends({.choice = BackendChoice::kCpu, .devices = {0}}).status().field(),
            "devices");
  EXPECT_EQ(MakeBackends({.choice = BackendChoice::kCuda, .devices = {1, 0, 1}}).status().field(),
            "devices");
  const Status threads =
      MakeBackends({.choice = BackendChoice::kCpu, .devices = {}, .cpu_threads = -1}).status();
  EXPECT_EQ(threads.field(), "cpu_threads");
}

TEST(BackendFactoryTest, SaysWhichBackendItTookAndWhy) {
  const StatusOr<BackendSet> set = MakeBackends(
      {.choice = BackendChoice::kAuto, .devices = {}, .lanes = 1, .self_check = false});
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  const std::string name(set->backends.front()->name());
  EXPECT_EQ(set->reason.rfind("auto: " + name, 0), 0u) << set->reason;
  EXPECT_EQ(set->reason.find("because ") != std::string::npos, name == "cpu") << set->reason;

  const StatusOr<BackendSet> cuda = MakeBackends(
      {.choice = BackendChoice::kCuda, .devices = {}, .lanes = 1, .self_check = false});
  EXPECT_EQ(cuda.status().code(), name == "cuda" ? StatusCode::kOk : StatusCode::kUnavailable)
      << cuda.status().ToString();
}

}  // namespace
}  // namespace gemmd
