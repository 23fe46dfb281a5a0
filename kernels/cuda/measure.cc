#include "kernels/cuda/measure.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/core/quantile.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/image_params.h"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/stall_record.h"

namespace gemmd {
namespace {

using Graph = CudaOwner<cudaGraphExec_t, &cudaGraphExecDestroy>;

constexpr int kMaxLaunches = 2000;  // of one graph
constexpr int kProbeLaunches = 2;   // to find out how long one takes

StatusOr<double> SecondsOf(const std::function<Status()>& work, const Event& begin,
                           const Event& end, cudaStream_t stream) {
  RETURN_IF_CUDA_ERROR(cudaEventRecord(begin.get(), stream));
  RETURN_IF_ERROR(work());
  RETURN_IF_CUDA_ERROR(cudaEventRecord(end.get(), stream));
  RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.get()));
  float milliseconds = 0;
  RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  return milliseconds * 1e-3;
}

StatusOr<Graph> Capture(const Enqueue& enqueue, int launches, cudaStream_t stream) {
  RETURN_IF_CUDA_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Status status;
  for (int i = 0; i < launches && status.ok(); ++i) status = enqueue(i, stream);
  cudaGraph_t graph = nullptr;
  RETURN_IF_CUDA_ERROR(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec = nullptr;
  if (status.ok()) {
    status = CudaStatus(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  }
  IgnoreAtShutdown(cudaGraphDestroy(graph));
  RETURN_IF_ERROR(std::move(status));
  return Graph(exec);
}

struct Variant {
  Graph graph;  // null: hopeless
  int launches = 0;
  std::vector<double> seconds;  // of one launch, a sample a round
};

Status StopStatus(const std::stop_token& stop) {
  return stop.stop_requested() ? Cancelled("the measurement was stopped") : OkStatus();
}

}  // namespace

StatusOr<std::vector<PlanTiming>> MeasureInterleaved(const std::vector<Enqueue>& enqueues,
                                                     const TimingOptions& options, int min_launches,
                                                     const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const Stream stream, MakeStream());
  ASSIGN_OR_RETURN(const Event begin, MakeEvent());
  ASSIGN_OR_RETURN(const Event end, MakeEvent());
  std::vector<Variant> variants(enqueues.size());
  double fastest = std::numeric_limits<double>::infinity();
  for (size_t v = 0; v < variants.size(); ++v) {
    RETURN_IF_ERROR(StopStatus(stop));
    const auto probe = [&] {
      for (int i = 0; i < kProbeLaunches; ++i) RETURN_IF_ERROR(enqueues[v](i, stream.get()));
      return OkStatus();
    };
    ASSIGN_OR_RETURN(double probed, SecondsOf(probe, begin, end, stream.get()));  // warm-up
    ASSIGN_OR_RETURN(probed, SecondsOf(probe, begin, end, stream.get()));
    const double seconds = probed / kProbeLaunches;
    fastest = std::min(fastest, seconds);
    if (options.hopeless > 0 && seconds > options.hopeless * fastest) {
      variants[v].seconds.push_back(seconds);
      continue;
    }
    const double wanted = options.sample_seconds / seconds;
    const int most = std::max(min_launches, kMaxLaunches);
    variants[v].launches = static_cast<int>(
        std::clamp(wanted, static_cast<double>(min_launches), static_cast<double>(most)));
    ASSIGN_OR_RETURN(variants[v].graph, Capture(enqueues[v], variants[v].launches, stream.get()));
  }
  for (int round = 0; round <= options.rounds; ++round) {  // the first is warm-up
    for (size_t i = 0; i < variants.size(); ++i) {
      Variant& variant = variants[(i + static_cast<size_t>(round)) % variants.size()];
      if (variant.graph.get() == nullptr) continue;
      RETURN_IF_ERROR(StopStatus(stop));
      const auto replay = [&] {
        return CudaStatus(cudaGraphLaunch(variant.graph.get(), stream.get()), "cudaGraphLaunch");
      };
      ASSIGN_OR_RETURN(const double seconds, SecondsOf(replay, begin, end, stream.get()));
      if (round > 0) variant.seconds.push_back(seconds / variant.launches);
    }
  }
  std::vector<PlanTiming> timings;
  for (Variant& variant : variants) {
    std::vector<double>& samples = variant.seconds;
    std::sort(samples.begin(), samples.end());
    timings.push_back({.median_seconds = Quantile(samples, 0.5),
                       .p5_seconds = Quantile(samples, 0.05),
                       .p95_seconds = Quantile(samples, 0.95),
                       .stalls = {}});
  }
  return timings;
}

StatusOr<StallSample> MeasureStalls(const GemmProblem& problem, const Plan& plan,
                                    const GemmParams& params, const DeviceTraits& traits) {
  if (plan.stages == 0) return StallSample{};
  ASSIGN_OR_RETURN(const Event begin, MakeEvent());
  ASSIGN_OR_RETURN(const Event end, MakeEvent());
  std::byte counters[kStallBytes];
  RETURN_IF_CUDA_ERROR(cudaMemsetAsync(params.counters, 0, sizeof(counters), nullptr));
  const auto launch = [&] { return Launch(problem, plan, params, nullptr); };
  ASSIGN_OR_RETURN(const double seconds, SecondsOf(launch, begin, end, nullptr));
  RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(counters, params.counters, sizeof(counters),
                                       cudaMemcpyDeviceToHost, nullptr));
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
  return JudgeStalls(ReadCounters(counters), problem, plan, traits,
                     Nanoseconds(static_cast<int64_t>(seconds * 1e9)));
}

}  // namespace gemmd
