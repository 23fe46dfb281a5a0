// Client of a gemmd server: products over gRPC, with deadlines, retries and size checks made before
// a message is built.
//
//   StatusOr<std::unique_ptr<GemmClient>> client = GemmClient::Create({.target = "gpu7:50051"});
//   GemmProblem problem;  // f32
//   problem.m = 100, problem.n = 200, problem.k = 300;
//   problem = WithPackedLayouts(problem);
//   StatusOr<ClientResult> result = (*client)->Gemm(problem, {.a = a, .b = b, .d = d});
//
// Statuses are the server's where it answered. Made here: INVALID_ARGUMENT for a bad problem,
// OUT_OF_RANGE for one that does not fit a message, UNAVAILABLE and DEADLINE_EXCEEDED from the
// transport, INTERNAL for an answer that breaks the protocol.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/calibration.h"
#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/core/timing.h"

namespace gemmd {

using Milliseconds = std::chrono::milliseconds;

struct ClientOptions {
  std::string target = "127.0.0.1:50051";  // HOST:PORT, [V6]:PORT or unix:PATH
  // Largest message before the server has told its own limit (ServerInfo.limits), which then holds.
  int64_t max_message_bytes = int64_t{64} << 20;
  // The first wait before a retry; it doubles with each, up to two seconds, and is shortened by a
  // random part of a half.
  Milliseconds initial_backoff{50};
};

struct CallOptions {
  Milliseconds timeout{60000};  // of the whole call, retries and waits included
  std::string request_id{};     // empty: the server makes one
  // What the plan must be; empty and 0 leave it to the server.
  std::string kernel{};
  int stages = 0;
  int split_k = 0;
  int max_retries = 4;  // UNAVAILABLE only: a product changes nothing, so it may be sent again
  // Packs the rows of padded operands and leaves out what the problem does not read. Otherwise
  // everything is sent as it lies: for tests of what a server makes of it.
  bool trim = true;
};

struct ClientPlan {
  std::string kernel;
  int stages = 0;  // 0: no ring
  int split_k = 0;
  std::string source;  // "model", "measured", "forced"
  std::string limit;   // "none", "shared_memory", "k_tiles", "residency", "model", ...
  int resident_blocks = 0;
  int64_t smem_bytes = 0;
  double predicted_seconds = 0;  // 0: no model
  double measured_seconds = 0;   // 0: not measured
  bool pair = false;             // thread blocks in pairs that share a panel of their tiles
  int registers = 0;             // of a thread; 0: no kernel of the server's own
  double waves = 0;              // rounds of resident blocks that all tiles take; 0: no tiles
};

struct ClientResult {
  std::string request_id;
  std::string backend;  // empty: nothing was launched
  int device = -1;
  int lane = -1;
  ClientPlan plan;
  PhaseTimes phases;  // on the server
  StallSample stalls;
  double flops = 0;
  int attempts = 0;
  Nanoseconds round_trip{0};  // of the last attempt
};

struct ClientDevice {
  int ordinal = 0;
  std::string name, uuid;
  int compute_capability = 0;
  int sm_count = 0;
  int64_t memory_bytes = 0;
  int driver_version = 0;
  int lanes = 0;
};

struct ClientTypes {  // one combination that the server multiplies
  DType a{}, b{}, d{};
  ComputeMode mode{};
  DType accumulate{};
};

struct ClientServerInfo {
  std::string version, build, backend, backend_reason;
  std::vector<ClientDevice> devices;
  int64_t max_message_bytes = 0, max_queued_bytes = 0, max_extent = 0;
  int max_queued_requests = 0;
  std::vector<ClientTypes> types;
  double started_unix_seconds = 0;
  bool draining = false;
};

struct ClientKernel {
  std::string name;
  int block_m = 0, block_n = 0, block_k = 0, threads = 0, max_stages = 0;
  int64_t stage_bytes = 0;
  bool usable = false;
};

struct ClientExplanation {
  ClientPlan plan;
  std::vector<ClientPlan> candidates;  // fastest by the model first
};

struct ClientKernelStatistics {
  std::string kernel;
  int stages = 0;
  int64_t launches = 0;
  double kernel_seconds = 0;
  StallSample stalls;
};

// Samples of warps that waited for one reason, or issued.
struct ClientStallSamples {
  std::string reason;   // "long_scoreboard"; "selected": issued
  int64_t samples = 0;  // never negative
};

struct ClientKernelStallSamples {
  std::string kernel;  // also "sum_parts" and "other"
  std::vector<ClientStallSamples> reasons;
};

struct ClientStatistics {
  double uptime_seconds = 0;
  int64_t admitted = 0, completed = 0, failed = 0, rejected = 0;
  int queued = 0, running = 0;
  int64_t queued_bytes = 0;
  double flops = 0, kernel_seconds = 0;
  std::vector<ClientKernelStatistics> kernels;
  bool pc_sampling_up = false;    // the program counters of every device are sampled
  double pc_sampled_seconds = 0;  // whose samples were read, over all devices
  std::vector<ClientKernelStallSamples> stall_samples;
};

struct ClientTuneRequest {
  std::vector<GemmProblem> problems{};
  bool served = false;        // also the problems that the server has served
  double budget_seconds = 0;  // 0: none
  // Measure what the planner's model takes from the devices first; then nothing else need be asked
  // for.
  bool calibrate = false;
};

struct ClientCalibration {
  int ordinal = 0;
  std::string device;
  Calibration calibration;
};

struct ClientTuneProgress {
  int done = 0, total = 0;                      // problems
  std::vector<ClientCalibration> calibrations;  // of the devices that were calibrated so far
  // Absent: none was named, or none that this client can name.
  std::optional<GemmProblem> problem;
  std::optional<ClientPlan> best;      // absent: not measured yet
  std::optional<double> left_seconds;  // estimate
  bool tuning_file = false;            // the server saves what it measures in one
  int saved = 0;                       // of done, those that are in the file
};

struct ClientStudyRequest {
  std::vector<GemmProblem> problems{};
  std::string kernel{};  // empty: the planner's choice for each problem
  int max_stages = 0;    // 0: what fits
};

struct ClientStudyPoint {
  GemmProblem problem;
  ClientPlan plan;
  double median_seconds = 0;
  double spread_seconds = 0;  // between the 5th and 95th percentile
  StallSample stalls;
};

struct ClientProfileRequest {
  GemmProblem problem{};
  double duration_seconds = 0;  // from 0.01 to 60; 0: the server's default
};

// Instructions in a row that do one thing. Offsets in bytes from the start of their function.
struct ClientProgramRange {
  uint64_t first_offset = 0;
  uint64_t last_offset = 0;  // of the last instruction, which is in the range
  int64_t samples = 0;       // never negative
  std::string note;          // what it does; empty: not known
  std::vector<ClientStallSamples> reasons;
};

struct ClientFunctionProfile {
  std::string kernel;   // a kernel has a function for each type and storage
  int64_t samples = 0;  // never negative
  std::vector<ClientStallSamples> reasons;
  std::vector<ClientProgramRange> ranges;  // the most samples first
};

struct ClientProfile {
  ClientPlan plan;
  double median_seconds = 0;  // device time of a launch while it was sampled, operands cold
  std::vector<ClientFunctionProfile> functions;  // the most samples first
  int64_t dropped_samples = 0;                   // by the hardware, for want of room
};

enum class Serving { kUnknown, kServing, kNotServing, kServiceUnknown };
std::string_view Name(Serving serving);  // "UNKNOWN", "SERVING", ...: the health protocol's words

// One channel. Thread-safe; calls block the thread that makes them. Must outlive its calls.
class GemmClient {
 public:
  // Does not connect: INVALID_ARGUMENT for a target without a port.
  static StatusOr<std::unique_ptr<GemmClient>> Create(ClientOptions options);
  ~GemmClient();
  GemmClient(const GemmClient&) = delete;
  GemmClient& operator=(const GemmClient&) = delete;

  // Waits until there is a connection. UNAVAILABLE with the reason when there is none in time.
  // Optional: calls connect by themselves, and fail at once where nothing listens.
  Status Connect(Milliseconds timeout);

  // D = act(alpha op(A) op(B) + beta C + bias) into operands.d, which holds ResultBytes(problem)
  // bytes and is written only on success. Operands that the problem does not read may be null.
  StatusOr<ClientResult> Gemm(const GemmProblem& problem, const HostOperands& operands,
                              const CallOptions& options = {});

  // These are tried once.
  StatusOr<ClientServerInfo> Info(const CallOptions& options = {});
  StatusOr<std::vector<ClientKernel>> ListKernels(const CallOptions& options = {});
  StatusOr<ClientExplanation> Plan(const GemmProblem& problem, const CallOptions& options = {});
  // A request on `stop`, from any thread, cancels: CANCELLED.
  StatusOr<ClientStatistics> Statistics(const CallOptions& options = {},
                                        const std::stop_token& stop = {});
  StatusOr<Serving> Health(const std::string& service, const CallOptions& options = {});
  // Launches one problem, whose operands are packed, and samples what its device's kernels wait for
  // meanwhile; options ask for a plan, and their timeout begins when the duration has passed.
  // RESOURCE_EXHAUSTED while another call tunes, studies or profiles, FAILED_PRECONDITION and
  // UNIMPLEMENTED where the server does not sample. `stop` as above.
  StatusOr<ClientProfile> Profile(const ClientProfileRequest& request,
                                  const std::stop_token& stop = {},
                                  const CallOptions& options = {});

  // For the streams below options.timeout bounds silence, not the call (0: no limit): the server
  // must begin within it, and from then on send a message or answer a health check, which is made
  // after half of it, within it. Else DEADLINE_EXCEEDED.

  // Calls `on_status` with the present status and each later one, until it returns false (then OK)
  // or the server ends the stream.
  Status WatchHealth(const std::string& service, const std::function<bool(Serving)>& on_status,
                     const CallOptions& options = {});

  // Both are tried once and block until the server has ended the stream. A request on `stop`, from
  // any thread, cancels: CANCELLED.
  // Measures plans and keeps the fastest in the server's tuning table, and in its tuning file where
  // it has one; what was measured before a call failed or was cancelled too. RESOURCE_EXHAUSTED
  // while another call tunes.
  Status Tune(const ClientTuneRequest& request,
              const std::function<void(const ClientTuneProgress&)>& on_progress,
              const std::stop_token& stop = {}, const CallOptions& options = {});
  // Measures each problem at every stage count.
  Status Study(const ClientStudyRequest& request,
               const std::function<void(const ClientStudyPoint&)>& on_point,
               const std::stop_token& stop = {}, const CallOptions& options = {});

 private:
  struct Impl;
  explicit GemmClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gemmd
