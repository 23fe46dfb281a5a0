#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/launcher.h"
#include "kernels/plan/planner.h"
#include "tests/bench/bench.h"
#include "tests/bench/cublaslt_peer.h"
#include "tests/bench/operands.h"
#include "tests/bench/result_check.h"
#include "tests/bench/shape_list.h"

namespace gemmd::bench {
namespace {

// Enough to find the fastest of many; the two that are reported are measured again beside ours.
constexpr TimingOptions kPeerSearch = {.rounds = 3, .sample_seconds = 3e-4};

// cuBLASLt on one form of the operands: its first choice, and the fastest of all that it offers.
struct Peer {
  Form form = Form::kPacked;
  std::unique_ptr<PeerProduct> product;
  int first = 0, best = 0;  // algorithms
};

// What is launched, checked and timed; `form` says where its D lies.
struct Arm {
  std::string name;
  Form form = Form::kPitched;
  Enqueue enqueue;
};

struct PeerTimes {
  double first_us = 0;
  double best_us = 0;
};

struct ShapeResult {
  Shape shape;
  double flops = 0;
  Plan plan;
  PlanTiming ours;
  PeerTimes peer;
  std::optional<PeerTimes> padded;
  bool ok = true;
  bool peer_ok = true;

  double ratio_first() const { return peer.first_us / Us(ours.median_seconds); }
  double ratio_best() const { return peer.best_us / Us(ours.median_seconds); }
};

Enqueue PeerEnqueue(const Peer& peer, int algorithm, const OperandSets& sets) {
  return [&product = *peer.product, form = peer.form, algorithm, &sets](int index,
                                                                        cudaStream_t stream) {
    return product.Enqueue(algorithm, sets.At(form, index), stream);
  };
}

// The library may offer what it then refuses to launch; that is left out.
StatusOr<Peer> MakePeer(const CublasLt& library, const GemmProblem& problem,
                        const OperandSets& sets, Form form) {
  Peer peer;
  peer.form = form;
  ASSIGN_OR_RETURN(peer.product, PeerProduct::Create(library, problem, sets.At(form, 0)));
  ASSIGN_OR_RETURN(const Stream stream, MakeStream());
  std::vector<int> usable;
  std::vector<Enqueue> variants;
  for (int algorithm = 0; algorithm < peer.product->algorithms(); ++algorithm) {
    const Enqueue enqueue = PeerEnqueue(peer, algorithm, sets);
    const bool launched = enqueue(0, stream.get()).ok();
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream.get()));
    if (!launched) continue;
    usable.push_back(algorithm);
    variants.push_back(enqueue);
  }
  if (usable.empty()) return Unimplemented("cuBLASLt launches nothing for " + ToString(problem));
  ASSIGN_OR_RETURN(const std::vector<PlanTiming> timings,
                   MeasureInterleaved(variants, kPeerSearch, /*min_launches=*/2));
  const auto best = std::min_element(
      timings.begin(), timings.end(),
      [](const PlanTiming& x, const PlanTiming& y) { return x.median_seconds < y.median_seconds; });
  peer.first = usable.front();
  peer.best = usable[static_cast<size_t>(best - timings.begin())];
  return peer;
}

// The peer's two, or one where its first choice is its fastest.
void AddArms(const Peer& peer, const std::string& name, const OperandSets& sets,
             std::vector<Arm>& arms) {
  arms.push_back({name + " first", peer.form, PeerEnqueue(peer, peer.first, sets)});
  if (peer.best == peer.first) return;
  arms.push_back({name + " best", peer.form, PeerEnqueue(peer, peer.best, sets)});
}

// Reads what AddArms added, from timings[next] on. The best is never slower than the first, which
// is one of its candidates.
PeerTimes TimesOf(const Peer& peer, const std::vector<PlanTiming>& timings, size_t& next) {
  PeerTimes times;
  times.first_us = times.best_us = Us(timings[next++].median_seconds);
  if (peer.best != peer.first) {
    times.best_us = std::min(times.first_us, Us(timings[next++].median_seconds));
  }
  return times;
}

// What one product of a batch must give.
struct ProductReference {
  int64_t product = 0;
  SampledReference values;
};

// Of the first product and of the last.
StatusOr<std::vector<ProductReference>> ReferencesOf(const GemmProblem& problem,
                                                     const OperandSets& sets, uint64_t seed) {
  GemmProblem one = problem;
  one.batch = 1;
  std::vector<ProductReference> references;
  for (const int64_t product : std::set<int64_t>{0, problem.batch - 1}) {
    std::vector<std::byte> a, b;
    RETURN_IF_ERROR(sets.DownloadOperands(product, a, b));
    references.push_back(
        {product, SampledReference(one, PickSample(one, seed), a.data(), b.data())});
  }
  return references;
}

// Launches once on set 0, into poisoned memory. Prints what is wrong.
StatusOr<bool> IsRight(const Arm& arm, const Shape& shape, const OperandSets& sets,
                       const std::vector<ProductReference>& references, uint64_t seed) {
  RETURN_IF_ERROR(sets.PoisonResult(arm.form));
  ASSIGN_OR_RETURN(const Stream stream, MakeStream());
  RETURN_IF_ERROR(arm.enqueue(0, stream.get()));
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream.get()));
  bool right = true;
  for (const ProductReference& reference : references) {
    ASSIGN_OR_RETURN(
        const std::vector<std::byte> d,
        sets.DownloadRows(arm.form, reference.product, reference.values.sample().rows));
    const Mismatch mismatch = reference.values.Compare(d.data());
    if (mismatch.ok) continue;
    right = false;
    std::fprintf(stderr, "WRONG %s %s, product %lld, %s, seed %llu: %s\n", shape.name.c_str(),
                 shape.dtype.c_str(), static_cast<long long>(reference.product), arm.name.c_str(),
                 static_cast<unsigned long long>(seed), mismatch.ToString().c_str());
  }
  return right;
}

StatusOr<ShapeResult> BenchShape(const Shape& shape, const Plan& plan, const OperandSets& sets,
                                 const CublasLt& library, const BenchContext& context) {
  const GemmProblem& problem = shape.problem;
  ASSIGN_OR_RETURN(const Peer packed, MakePeer(library, problem, sets, Form::kPacked));
  std::optional<Peer> padded;
  if (sets.unaligned_rows()) {
    ASSIGN_OR_RETURN(padded, MakePeer(library, problem, sets, Form::kPitched));
  }
  std::vector<Arm> arms;
  arms.push_back({std::string(plan.kernel()), Form::kPitched, [&](int index, cudaStream_t stream) {
                    return Launch(problem, plan, sets.Params(index), stream);
                  }});
  AddArms(packed, "peer", sets, arms);
  if (padded) AddArms(*padded, "padded peer", sets, arms);

  ShapeResult result;
  result.shape = shape, result.flops = problem.flops(), result.plan = plan;
  ASSIGN_OR_RETURN(const std::vector<ProductReference> references,
                   ReferencesOf(problem, sets, context.seed));
  std::vector<Enqueue> variants;
  for (size_t i = 0; i < arms.size(); ++i) {
    ASSIGN_OR_RETURN(const bool right, IsRight(arms[i], shape, sets, references, context.seed));
    (i == 0 ? result.ok : result.peer_ok) &= right;
    variants.push_back(arms[i].enqueue);
  }
  ASSIGN_OR_RETURN(
      const std::vector<PlanTiming> timings,
      MeasureInterleaved(variants, context.measure, std::max(kFewLaunches, sets.sets())));
  result.ours = timings[0];
  size_t next = 1;
  result.peer = TimesOf(packed, timings, next);
  if (padded) result.padded = TimesOf(*padded, timings, next);
  return result;
}

Json ToLine(const ShapeResult& r, const BenchContext& context) {
  Json line = ShapeLine("kernel", r.shape);
  AddPlan(line, r.plan)
      .Set("median_us", Json::Rounded(Us(r.ours.median_seconds), 3))
      .Set("p5_us", Json::Rounded(Us(r.ours.p5_seconds), 3))
      .Set("p95_us", Json::Rounded(Us(r.ours.p95_seconds), 3))
      .Set("tflops", Json::Rounded(r.flops / Us(r.ours.median_seconds) * 1e-6, 2))
      .Set("peer_first_us", Json::Rounded(r.peer.first_us, 3))
      .Set("peer_best_us", Json::Rounded(r.peer.best_us, 3))
      .Set("ratio_first", Json::Rounded(r.ratio_first(), 4))
      .Set("ratio_best", Json::Rounded(r.ratio_best(), 4));
  if (r.padded) {
    line.Set("peer_padded_first_us", Json::Rounded(r.padded->first_us, 3))
        .Set("peer_padded_best_us", Json::Rounded(r.padded->best_us, 3))
        .Set("ratio_padded_first",
             Json::Rounded(r.padded->first_us / Us(r.ours.median_seconds), 4));
  }
  line.Set("ok", r.ok);
  if (!r.peer_ok) line.Set("peer_ok", false);
  return AddMachine(line, context);
}

void PrintTable(const std::vector<ShapeResult>& results) {
  struct Group {
    int shapes = 0;
    double log_sum = 0;
  };
  std::map<std::string, Group> groups;
  std::fprintf(stderr, "\n%-24s %-5s %-2s %20s %2s %10s %8s %10s %7s %7s %7s\n", "shape", "dtype",
               "", "kernel", "S", "us", "TFLOP/s", "peer us", "/first", "/best", "/padded");
  for (const ShapeResult& r : results) {
    std::fprintf(stderr, "%-24s %-5s %-2s %20s %2d %10.2f %8.1f %10.2f %7.3f %7.3f ",
                 r.shape.name.c_str(), r.shape.dtype.c_str(), OpsName(r.shape.problem).c_str(),
                 std::string(r.plan.kernel()).c_str(), r.plan.stages, Us(r.ours.median_seconds),
                 r.flops / Us(r.ours.median_seconds) * 1e-6, r.peer.first_us, r.ratio_first(),
                 r.ratio_best());
    if (r.padded) std::fprintf(stderr, "%7.3f", r.padded->first_us / Us(r.ours.median_seconds));
    std::fprintf(stderr, "%s%s\n", r.ok ? "" : " WRONG", r.peer_ok ? "" : " peer wrong");
    for (const std::string& name :
         {r.shape.dtype + " " + FamilyOf(r.shape), r.shape.dtype + " (all)"}) {
      groups[name].shapes += 1;
      groups[name].log_sum += std::log(r.ratio_first());
    }
  }
  std::fprintf(stderr, "\n%-24s %6s  geomean of peer first / ours\n", "class", "shapes");
  for (const auto& [name, group] : groups) {
    std::fprintf(stderr, "%-24s %6d  %.3f\n", name.c_str(), group.shapes,
                 std::exp(group.log_sum / group.shapes));
  }
}

class ShapesBench {
 public:
  ShapesBench(const ShapesOptions& options, const BenchContext& context, CublasLt library)
      : options_(options),
        context_(context),
        planner_(context.traits),
        library_(std::move(library)) {}

  // False: left out, for a reason that was printed.
  StatusOr<bool> Run(const Shape& shape) {
    const GemmProblem& problem = shape.problem;
    if (!HasKernel(problem)) return Skip(shape, "no kernel for " + shape.dtype + " yet");
    const PlanConstraints constraints = options_.constraints();
    const StatusOr<Plan> plan = planner_.PlanFor(problem, constraints);
    if (!plan.ok()) {
      if (constraints.any()) return Skip(shape, plan.status().message());
      return plan.status();
    }
    ASSIGN_OR_RETURN(const RandomPattern* const pattern, PatternOf(problem.type_a));
    ASSIGN_OR_RETURN(const OperandSets sets,
                     OperandSets::Create(problem, context_.traits.l2_bytes, *pattern));
    ASSIGN_OR_RETURN(const ShapeResult result, BenchShape(shape, *plan, sets, library_, context_));
    results_.push_back(result);
    RETURN_IF_ERROR(context_.out.Write(ToLine(result, context_)));
    if (!result.ok) return Internal(std::string(plan->kernel()) + " gives a wrong result");
    return true;
  }

  const std::vector<ShapeResult>& results() const { return results_; }

 private:
  static bool Skip(const Shape& shape, const std::string& reason) {
    std::fprintf(stderr, "skipped %s %s: %s\n", shape.name.c_str(), shape.dtype.c_str(),
                 reason.c_str());
    return false;
  }

  StatusOr<const RandomPattern*> PatternOf(DType type) {
    const auto found = patterns_.find(type);
    if (found != patterns_.end()) return &found->second;
    ASSIGN_OR_RETURN(RandomPattern pattern, RandomPattern::Create(type, context_.seed));
    return &patterns_.emplace(type, std::move(pattern)).first->second;
  }

  const ShapesOptions& options_;
  const BenchContext& context_;
  const Planner planner_;
  const CublasLt library_;
  std::map<DType, RandomPattern> patterns_;
  std::vector<ShapeResult> results_;
};

}  // namespace

Status RunShapes(const ShapesOptions& options, const BenchContext& context) {
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes, ReadShapes(options.file, options.rows));
  ASSIGN_OR_RETURN(CublasLt library, CublasLt::Create());
  ShapesBench bench(options, context, std::move(library));
  int failed = 0;
  for (const Shape& shape : shapes) {
    const StatusOr<bool> measured = bench.Run(shape);
    if (measured.ok()) continue;
    ++failed;
    std::fprintf(stderr, "FAILED %s %s: %s\n", shape.name.c_str(), shape.dtype.c_str(),
                 measured.status().ToString().c_str());
  }
  PrintTable(bench.results());
  if (failed > 0) {
    return Internal(std::to_string(failed) + " of " + std::to_string(shapes.size()) +
                    " shapes failed");
  }
  if (bench.results().empty()) return Internal("no shape was measured");
  return OkStatus();
}

}  // namespace gemmd::bench
