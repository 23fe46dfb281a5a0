// gemmctl plan, and what it asks of a product, which gemmctl profile asks too.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "client/gemmctl.h"
#include "client/plan_table.h"

namespace gemmd::ctl {

void AddProductOptions(CLI::App* verb, ProductOptions* options) {
  verb->add_option("M", options->m, "Rows of D")->required()->check(Integer<int64_t>());
  verb->add_option("N", options->n, "Columns of D")->required()->check(Integer<int64_t>());
  verb->add_option("K", options->k, "Length of the sum")->required()->check(Integer<int64_t>());
  verb->add_option("--batch", options->batch, "Products")
      ->check(Integer<int64_t>())
      ->capture_default_str();
  AddDType(verb, "--dtype", &options->dtype, "Type of A and B")->capture_default_str();
  AddDType(verb, "--out-dtype", &options->out_dtype, "Type of D; by default what goes with A");
  verb->add_flag("--trans-a", options->trans_a, "A is stored as K rows of M");
  verb->add_flag("--trans-b", options->trans_b, "B is stored as N rows of K");
  verb->add_option("--kernel", options->kernel, "Ask for this kernel")->check(Utf8());
  verb->add_option("--stages", options->stages, "Ask for this many stages")->check(Integer<int>());
  verb->add_option("--split-k", options->split_k, "Ask for this many parts of K")
      ->check(Integer<int>());
}

StatusOr<GemmProblem> ToProblem(const ProductOptions& options) {
  GemmProblem problem;
  problem.m = options.m;
  problem.n = options.n;
  problem.k = options.k;
  problem.batch = options.batch;
  problem.op_a = options.trans_a ? Op::kT : Op::kN;
  problem.op_b = options.trans_b ? Op::kT : Op::kN;
  problem.type_a = problem.type_b = *ParseDType(options.dtype);
  problem.type_d = ParseDType(options.out_dtype).value_or(DefaultResultType(problem.type_a));
  // Extents out of bounds have no layout; ValidateProblem() refuses them before it looks for one.
  const int64_t extents[] = {problem.m, problem.n, problem.k, problem.batch};
  const bool bounded = std::all_of(std::begin(extents), std::end(extents), [](int64_t extent) {
    return extent >= 0 && extent <= kMaxExtent;
  });
  if (bounded) problem = WithPackedLayouts(problem);
  RETURN_IF_ERROR(ValidateProblem(problem));
  return problem;
}

CallOptions AskFor(const ProductOptions& options, CallOptions call) {
  call.kernel = options.kernel;
  call.stages = options.stages;
  call.split_k = options.split_k;
  return call;
}

namespace {

int RunPlan(const Context& context, const ProductOptions& options) {
  const StatusOr<GemmProblem> problem = ToProblem(options);
  if (!problem.ok()) return context.Fail(kExitBadInput, problem.status());
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  const StatusOr<ClientExplanation> explanation =
      client->Plan(*problem, AskFor(options, context.Call()));
  if (!explanation.ok()) return context.Fail(explanation.status());
  if (context.json) {
    Json candidates = Json::Array();
    for (const ClientPlan& plan : explanation->candidates) candidates.Add(gemmd::ToJson(plan));
    PrintJson(Json::Object()
                  .Set("problem", ToString(*problem))
                  .Set("plan", gemmd::ToJson(explanation->plan))
                  .Set("candidates", candidates));
    return kExitOk;
  }
  std::vector<ClientPlan> plans = {explanation->plan};
  plans.insert(plans.end(), explanation->candidates.begin(), explanation->candidates.end());
  std::printf("%s, chosen by: %s; the plan first, then its candidates\n%s",
              ToString(*problem).c_str(), explanation->plan.source.c_str(),
              PlanTable(plans).c_str());
  return kExitOk;
}

}  // namespace

void AddPlan(CLI::App* app, Context* context) {
  auto options = std::make_shared<ProductOptions>();
  CLI::App* verb = app->add_subcommand(
      "plan",
      "The plan a product would get, and its candidates. S: stages; LIMIT: what kept them from "
      "being more; PARTS: of K, or pairs of blocks; REGS: registers of a thread; BLK/SM: resident "
      "blocks; WAVES: rounds of blocks that all tiles take; SMEM: shared memory of a block; MODEL: "
      "the predicted time");
  AddProductOptions(verb, options.get());
  verb->callback([=] { context->run = [=] { return RunPlan(*context, *options); }; });
}

}  // namespace gemmd::ctl
