// gemmctl check: random products, verified here against the reference.
#include <cstdio>
#include <random>

#include <unistd.h>

#include "client/check_case.h"
#include "client/gemmctl.h"
#include "kernels/core/reference_gemm.h"

namespace gemmd::ctl {
namespace {

struct CheckOptions {
  uint64_t count = 100;
  uint64_t first = 0;
  std::optional<uint64_t> seed;
  int64_t max_extent = 300;
};

struct Tally {
  uint64_t passed = 0, wrong = 0, errors = 0;
  double worst_ratio = 0;
  Json failures = Json::Array();
};

// Everything that a failure depends on besides its seed.
std::string Describe(const GemmProblem& p) {
  std::string text = ToString(p) + " -> " + std::string(Name(p.type_d));
  if (p.mode != ComputeMode::kIeee) text += " " + std::string(Name(p.mode));
  text += " alpha " + Short(p.alpha) + " beta " + Short(p.beta);
  if (p.bias != BiasAxis::kNone) {
    text += p.bias == BiasAxis::kPerRow ? " bias per row" : " bias per column";
  }
  if (p.act != Activation::kNone) text += " " + std::string(Name(p.act));
  const auto layout = [&](const char* name, const MatrixLayout& l) {
    text += std::string(" ") + name + ".ld " + std::to_string(l.ld) + " stride " +
            std::to_string(l.batch_stride);
  };
  layout("a", p.a);
  layout("b", p.b);
  if (p.beta != 0) layout("c", p.c);
  return text;
}

class Checker {
 public:
  Checker(const Context& context, GemmClient* client, const std::vector<ClientTypes>& types,
          uint64_t seed, int64_t max_extent)
      : context_(context), client_(client), types_(types), seed_(seed), max_extent_(max_extent) {}

  // False where the server does not answer: the products that are left would each wait as long.
  bool Check(uint64_t index) {
    CheckCase made = MakeCheckCase(seed_, index, max_extent_, types_);
    CallOptions call = context_.Call();
    call.trim = index % 2 == 0;  // half as clients send, half with everything that must be ignored
    const StatusOr<ClientResult> result = client_->Gemm(made.problem, made.Operands(), call);
    if (!result.ok()) {
      ++tally_.errors;
      Report(index, made.problem, "", result.status().ToString());
      return !NoAnswer(result.status());
    }
    const Mismatch mismatch = CompareWithReference(made.problem, made.Operands());
    const bool intact = made.GuardIntact();
    tally_.worst_ratio = std::max(tally_.worst_ratio, mismatch.worst_ratio);
    if (mismatch.ok && intact) {
      ++tally_.passed;
      return true;
    }
    ++tally_.wrong;
    Report(index, made.problem,
           result->plan.kernel + " stages " + std::to_string(result->plan.stages),
           mismatch.ok ? "bytes behind d were written" : mismatch.ToString());
    return true;
  }

  const Tally& tally() const { return tally_; }

 private:
  void Report(uint64_t index, const GemmProblem& problem, const std::string& kernel,
              const std::string& what) {
    const std::string rerun = "gemmctl --server " + context_.server + " check --seed " +
                              std::to_string(seed_) + " --first " + std::to_string(index) +
                              " --count 1 --max-extent " + std::to_string(max_extent_);
    tally_.failures.Add(Json::Object()
                            .Set("index", index)
                            .Set("problem", Describe(problem))
                            .Set("kernel", kernel)
                            .Set("what", what)
                            .Set("rerun", rerun));
    std::fprintf(stderr, "gemmctl: check %llu failed: %s%s%s: %s\n  again: %s\n",
                 static_cast<unsigned long long>(index), Describe(problem).c_str(),
                 kernel.empty() ? "" : " by ", kernel.c_str(), what.c_str(), rerun.c_str());
  }

  const Context& context_;
  GemmClient* client_;
  const std::vector<ClientTypes>& types_;
  const uint64_t seed_;
  const int64_t max_extent_;
  Tally tally_;
};

int Finish(const Context& context, const CheckOptions& options, uint64_t seed, const Tally& tally) {
  const uint64_t checked = tally.passed + tally.wrong + tally.errors;
  if (checked < options.count) {
    std::fprintf(stderr, "gemmctl: the server does not answer; %llu of %llu products were sent\n",
                 static_cast<unsigned long long>(checked),
                 static_cast<unsigned long long>(options.count));
  }
  if (context.json) {
    PrintJson(Json::Object()
                  .Set("seed", seed)
                  .Set("first", options.first)
                  .Set("count", checked)
                  .Set("passed", tally.passed)
                  .Set("wrong", tally.wrong)
                  .Set("errors", tally.errors)
                  .Set("worst_error_over_allowed", tally.worst_ratio)
                  .Set("failures", tally.failures));
  } else {
    std::printf(
        "check: seed %llu, %llu products: %llu right, %llu wrong, %llu failed; largest "
        "error %.3g of what is allowed\n",
        static_cast<unsigned long long>(seed), static_cast<unsigned long long>(checked),
        static_cast<unsigned long long>(tally.passed), static_cast<unsigned long long>(tally.wrong),
        static_cast<unsigned long long>(tally.errors), tally.worst_ratio);
  }
  return tally.wrong > 0 ? kExitBadInput : tally.errors > 0 ? kExitRpc : kExitOk;
}

int RunCheck(const Context& context, const CheckOptions& options) {
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  const StatusOr<ClientServerInfo> info = client->Info(context.Call());
  if (!info.ok()) return context.Fail(info.status());
  if (info->types.empty()) {
    return context.Fail(kExitRpc, Internal("the server lists no types that this client knows"));
  }
  const uint64_t seed = options.seed ? *options.seed : std::random_device{}();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  Checker checker(context, client.get(), info->types, seed, options.max_extent);
  bool answers = true;
  for (uint64_t i = 0; i < options.count && answers; ++i) {
    answers = checker.Check(options.first + i);
    if (!terminal) continue;
    std::fprintf(stderr, "\r%llu/%llu%s", static_cast<unsigned long long>(i + 1),
                 static_cast<unsigned long long>(options.count),
                 i + 1 == options.count || !answers ? "\r\033[K" : "");
  }
  return Finish(context, options, seed, checker.tally());
}

}  // namespace

void AddCheck(CLI::App* app, Context* context) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* verb = app->add_subcommand(
      "check", "Random products, verified here; a mismatch prints the command that repeats it");
  verb->add_option("--count", options->count, "Products")
      ->check(Integer<uint64_t>(1, 1'000'000'000))
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Same seed, same products [random]")
      ->check(Integer<uint64_t>());
  verb->add_option("--first", options->first, "Start with this product of the seed")
      ->check(Integer<uint64_t>())
      ->capture_default_str();
  verb->add_option("--max-extent", options->max_extent, "Largest m, n and k")
      ->check(Integer<int64_t>(1, 16384))
      ->capture_default_str();
  verb->callback([=] { context->run = [=] { return RunCheck(*context, *options); }; });
}

}  // namespace gemmd::ctl
