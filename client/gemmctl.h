// What the verbs of gemmctl share. One process, one thread.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "client/client_json.h"
#include "client/gemm_client.h"
#include "client/problem_list.h"
#include "kernels/core/json.h"
#include "kernels/core/tables.h"
#include "kernels/core/text.h"

namespace gemmd::ctl {

// As grpc_health_probe's, which monitoring knows.
enum ExitCode : int {
  kExitOk = 0,
  kExitBadInput = 1,  // arguments, files, or a product that the server refuses as malformed
  kExitNoConnection = 2,
  kExitRpc = 3,
  kExitNotServing = 4,     // health only
  kExitInterrupted = 128,  // plus the signal's number, as a shell has it
};

struct Context {
  std::string server = "127.0.0.1:50051";
  double timeout_seconds = 60;
  double connect_timeout_seconds = 5;
  bool json = false;
  std::function<int()> run;  // set by the verb that was named; returns an ExitCode

  CallOptions Call() const;
  // Connected, or kExitNoConnection in *exit_code with the reason already printed. Waits no longer
  // than either timeout.
  std::unique_ptr<GemmClient> Connect(int* exit_code) const;
  // Prints the error, and as JSON where asked; returns `exit_code`.
  int Fail(int exit_code, const Status& status) const;
  // `exit_code`, or kExitBadInput when not all of stdout could be written.
  int AfterOutput(int exit_code) const;
  // The exit code by the status: bad input, or a failed call.
  int Fail(const Status& status) const;
};

// Whether a call failed because nobody answers it: another call to that server would wait as long.
bool NoAnswer(const Status& status);

// Each adds its verbs to the command line; Context outlives parsing and running.
void AddMatmul(CLI::App* app, Context* context);
void AddCheck(CLI::App* app, Context* context);
void AddPlan(CLI::App* app, Context* context);
void AddServerVerbs(CLI::App* app, Context* context);  // info, kernels, stats
void AddHealth(CLI::App* app, Context* context);
void AddTune(CLI::App* app, Context* context);
void AddStudy(CLI::App* app, Context* context);
void AddProfile(CLI::App* app, Context* context);
void AddStalls(CLI::App* app, Context* context);
void AddLab(CLI::App* app, Context* context);

// Options that the verbs word alike.
// An integer of type T in [low, high]; a refusal repeats what was typed.
template <typename T>
CLI::Validator Integer(T low = std::numeric_limits<T>::min(),
                       T high = std::numeric_limits<T>::max()) {
  const auto check = [low, high](const std::string& text) {
    const std::optional<T> value = ParseNumber<T>(text);
    if (value && low <= *value && *value <= high) return std::string();
    return text + " is not an integer from " + std::to_string(low) + " to " + std::to_string(high);
  };
  return {check, "INT"};
}
// A time as ParseSeconds() takes it, of `least` to `most` seconds, which `limits` words.
CLI::Validator TimeBetween(double least, double most, const std::string& limits);
// Text that is sent to the server.
CLI::Validator Utf8();
CLI::Option* AddDType(CLI::App* verb, const std::string& flag, std::string* name,
                      const std::string& help);
std::optional<DType> ParseDType(const std::string& name);  // nullopt for ""

// One product, its operands packed, and what its plan must be; 0 and empty leave that to the
// server.
struct ProductOptions {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool trans_a = false, trans_b = false;
  std::string dtype = "bf16", out_dtype, kernel;
  int stages = 0, split_k = 0;
};
void AddProductOptions(CLI::App* verb, ProductOptions* options);
StatusOr<GemmProblem> ToProblem(const ProductOptions& options);
CallOptions AskFor(const ProductOptions& options, CallOptions call);  // `call`, and that plan

// Problems to measure.
struct ProblemOptions {
  std::vector<std::string> shapes;
  std::string file, m, n, k;
  std::string dtype = "bf16";
  bool trans_a = false, trans_b = false;
};
void AddProblemOptions(CLI::App* verb, ProblemOptions* options);
// In the order of the options; none where nothing names one. Reads the file of shapes.
StatusOr<std::vector<NamedProblem>> ReadProblems(const ProblemOptions& options);

Json ToJson(const ClientResult& result);
Json Seconds(Nanoseconds time);
double Tflops(const ClientResult& result);  // by kernel time; 0 when nothing ran

void PrintTable(const std::vector<std::vector<std::string>>& rows);  // as TableText()
void PrintJson(const Json& json);                                    // one line on stdout

}  // namespace gemmd::ctl
