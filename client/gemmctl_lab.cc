// gemmctl lab: starts the pipeline laboratory, a program of its own, so that neither gemmctl nor a
// server holds its kernels.
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "client/gemmctl.h"

namespace gemmd::ctl {
namespace {

constexpr char kProgram[] = "gemmd_lab";

// Does not return where it succeeds.
int Start(const Context& context, const std::vector<std::string>& words) {
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (unknown) {
    return context.Fail(
        kExitBadInput,
        Unavailable("cannot tell where gemmctl is: /proc/self/exe: " + unknown.message()));
  }
  const std::string program = (self.parent_path() / kProgram).string();
  std::vector<std::string> all = {kProgram};
  if (context.json) all.emplace_back("--json");
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  const std::string why = std::generic_category().message(errno);
  return context.Fail(
      kExitBadInput,
      Unimplemented("cannot start " + program + ": " + why +
                    "; a build with CUDA makes it, and a bundle has it with --bench"));
}

}  // namespace

void AddLab(CLI::App* app, Context* context) {
  CLI::App* const verb = app->add_subcommand(
      "lab", "The pipeline laboratory, on this machine's GPU; gemmctl lab --help lists its verbs");
  verb->set_help_flag();     // the program's own
  verb->fallthrough(false);  // every word behind the verb is the program's
  verb->prefix_command();
  verb->callback([verb, context] {
    context->run = [verb, context] { return Start(*context, verb->remaining()); };
  });
}

}  // namespace gemmd::ctl
