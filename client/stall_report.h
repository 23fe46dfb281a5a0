// What kernels waited for: between two answers of GetStatistics, and in a profile. Pure functions
// of what came from the server, whose text is at most 100 columns wide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/gemm_client.h"
#include "kernels/core/json.h"

namespace gemmd {

// A wait in % of the main loop's cycles; "-" where they are not known.
std::string MainloopShare(const StallSample& stalls, uint64_t wait);

// What a server did from one moment to another. No count is below 0.
struct StallInterval {
  double seconds = 0;         // by the server's clock
  double uptime_seconds = 0;  // at its end
  bool pc_sampling_up = false;
  double pc_sampled_seconds = 0;                // over all devices
  std::vector<ClientKernelStatistics> kernels;  // that were launched; the most kernel time first
  // Of kernels that were sampled; the most samples first, and so their reasons.
  std::vector<ClientKernelStallSamples> stall_samples;
};

// nullopt: the server was started anew in between, and its counters began at 0 again.
std::optional<StallInterval> Between(const ClientStatistics& before, const ClientStatistics& now);

// A line on the interval, a table of the kernels that ran, and one of those that were sampled.
std::string StallText(const StallInterval& interval);
Json ToJson(const StallInterval& interval);

Json ToJson(const std::vector<ClientKernelStallSamples>& stall_samples);

// The plan, the time of a launch, and for each function its reasons and its fullest ranges.
std::string ProfileText(const GemmProblem& problem, const ClientProfile& profile);
Json ProfileJson(const GemmProblem& problem, const ClientProfile& profile);  // all of it

}  // namespace gemmd
