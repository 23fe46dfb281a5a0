// gemmctl profile: where in its code a product waits, sampled on the server.
#include <cstdio>

#include "client/gemmctl.h"
#include "client/interrupt.h"
#include "client/stall_report.h"

namespace gemmd::ctl {
namespace {

struct ProfileOptions {
  ProductOptions product;
  std::string duration;
};

int RunProfile(const Context& context, const ProfileOptions& options) {
  const StatusOr<GemmProblem> problem = ToProblem(options.product);
  if (!problem.ok()) return context.Fail(kExitBadInput, problem.status());
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  const ClientProfileRequest request{
      .problem = *problem, .duration_seconds = ParseSeconds(options.duration).value_or(0)};
  const Interrupt interrupt;
  const StatusOr<ClientProfile> profile =
      client->Profile(request, interrupt.token(), AskFor(options.product, context.Call()));
  if (!profile.ok()) {
    if (interrupt.signal() == 0) return context.Fail(profile.status());
    return context.Fail(kExitInterrupted + interrupt.signal(),
                        Cancelled("interrupted; there is no profile"));
  }
  if (context.json) {
    PrintJson(ProfileJson(*problem, *profile));
  } else {
    std::fputs(ProfileText(*problem, *profile).c_str(), stdout);
  }
  return kExitOk;
}

}  // namespace

void AddProfile(CLI::App* app, Context* context) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* verb = app->add_subcommand(
      "profile",
      "Launches one product on the server for a while and samples what its warps wait for: the "
      "reasons, and the ranges of the kernel's code that hold the most samples. What runs beside "
      "it "
      "is sampled too. --timeout begins when the duration has passed");
  AddProductOptions(verb, &options->product);
  verb->add_option("--duration", options->duration,
                   "For so long, from 10ms to 60s; a bare number is of seconds; by default 1s")
      ->check(TimeBetween(0.01, 60, "from 10ms to 60s"));
  verb->callback([=] { context->run = [=] { return RunProfile(*context, *options); }; });
}

}  // namespace gemmd::ctl
