// gemmd_latency: where the time of small unary calls goes, as one JSON line.
//
// "overhead" is what the server adds: total - queue - h2d - kernel - d2h, by its own account. The
// calls follow one another on one connection, so nothing waits in the queue.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "client/gemm_client.h"
#include "kernels/core/numeric.h"

namespace gemmd::bench {
namespace {

struct Options {
  std::string server = "127.0.0.1:50051";
  int64_t extent = 128;
  std::string dtype = "bf16";
  int calls = 5000;
  int warm_up = 500;
  uint64_t seed = 1;
  std::string commit = "unknown";
  std::string gpu = "none";
  std::string date;
};

using Samples = std::map<std::string, std::vector<double>>;  // microseconds by part

void Add(Samples& samples, const ClientResult& result) {
  const PhaseTimes& t = result.phases;
  const auto put = [&samples](const char* part, Nanoseconds time) {
    samples[part].push_back(static_cast<double>(time.count()) * 1e-3);
  };
  put("decode", t.decode);
  put("queue", t.queue);
  put("plan", t.plan);
  put("stage", t.stage);
  put("h2d", t.h2d);
  put("kernel", t.kernel);
  put("d2h", t.d2h);
  put("unstage", t.unstage);
  put("total", t.total);
  put("overhead", t.total - t.queue - t.h2d - t.kernel - t.d2h);
  put("round_trip", result.round_trip);
}

Status Run(const Options& options) {
  ASSIGN_OR_RETURN(const auto client, GemmClient::Create({.target = options.server}));
  GemmProblem problem;
  problem.m = problem.n = problem.k = options.extent;
  problem.type_a = problem.type_b = problem.type_d = *DTypeFromName(options.dtype);
  problem = WithPackedLayouts(problem);
  const int64_t elements = options.extent * options.extent;
  const auto bytes = static_cast<size_t>(elements * SizeOf(problem.type_a));
  std::vector<std::byte> a(bytes), b(bytes), d(bytes);
  std::mt19937_64 random(options.seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < elements; ++i) {
    StoreElement(a.data(), problem.type_a, i, normal(random));
    StoreElement(b.data(), problem.type_b, i, normal(random));
  }
  Samples samples;
  std::string backend, kernel;
  for (int call = 0; call < options.warm_up + options.calls; ++call) {
    ASSIGN_OR_RETURN(
        const ClientResult result,
        client->Gemm(problem,
                     {.a = a.data(), .b = b.data(), .c = nullptr, .bias = nullptr, .d = d.data()}));
    if (call >= options.warm_up) Add(samples, result);
    backend = result.backend, kernel = result.plan.kernel;
  }
  std::printf(
      "{\"bench\":\"latency\",\"dtype\":\"%s\",\"m\":%lld,\"n\":%lld,\"k\":%lld,"
      "\"calls\":%d,\"backend\":\"%s\",\"kernel\":\"%s\"",
      options.dtype.c_str(), static_cast<long long>(problem.m), static_cast<long long>(problem.n),
      static_cast<long long>(problem.k), options.calls, backend.c_str(), kernel.c_str());
  for (auto& [part, us] : samples) {
    std::sort(us.begin(), us.end());
    std::printf(",\"%s_p50_us\":%.2f,\"%s_p99_us\":%.2f", part.c_str(), us[us.size() / 2],
                part.c_str(), us[us.size() * 99 / 100]);
  }
  std::printf(",\"seed\":%llu,\"gpu\":\"%s\",\"commit\":\"%s\",\"date\":\"%s\"}\n",
              static_cast<unsigned long long>(options.seed), options.gpu.c_str(),
              options.commit.c_str(), options.date.c_str());
  return OkStatus();
}

}  // namespace
}  // namespace gemmd::bench

int main(int argc, char** argv) {
  gemmd::bench::Options options;
  CLI::App app("Where the time of small unary calls goes, as a JSON line");
  app.add_option("--server", options.server, "HOST:PORT")->envname("GEMMD_SERVER");
  app.add_option("--extent", options.extent, "m, n and k")->check(CLI::Range(1, 2048));
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"bf16", "f16", "f32"}));
  app.add_option("--calls", options.calls)->check(CLI::PositiveNumber);
  app.add_option("--warm-up", options.warm_up)->check(CLI::NonNegativeNumber);
  app.add_option("--seed", options.seed);
  app.add_option("--commit", options.commit, "written into the line, as --gpu and --date");
  app.add_option("--gpu", options.gpu);
  app.add_option("--date", options.date);
  CLI11_PARSE(app, argc, argv);
  const gemmd::Status status = gemmd::bench::Run(options);
  if (!status.ok()) std::fprintf(stderr, "gemmd_latency: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
