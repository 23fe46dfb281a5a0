// gemmctl matmul: .npy files in, a .npy file out.
#include <cstdio>
#include <new>

#include "client/gemmctl.h"
#include "client/npy.h"

namespace gemmd::ctl {
namespace {

struct MatmulOptions {
  std::string a, b, c, bias, d;
  std::string bias_axis = "column", act = "none", dtype, out_dtype, mode = "ieee";
  std::string kernel, request_id;
  double alpha = 1;
  std::optional<double> beta;  // 1 with a C, else 0
  bool trans_a = false, trans_b = false, deterministic = false;
  int stages = 0, split_k = 0;
};

// A product and the memory that it reads and writes.
struct Product {
  GemmProblem problem;
  NpyArray a, b, c, bias, d;

  HostOperands Operands() const {
    return {a.data.get(), b.data.get(), c.data.get(), bias.data.get(), d.data.get()};
  }
};

std::string ShapeText(const NpyArray& array) {
  return (array.has_batch ? std::to_string(array.batch) + "x" : "") + std::to_string(array.rows) +
         "x" + std::to_string(array.cols);
}

// As the array lies in memory: a column-major one is the transposed matrix.
MatrixLayout LayoutOf(const NpyArray& array, int64_t batch) {
  const int64_t rows = array.column_major ? array.cols : array.rows;
  const int64_t cols = array.column_major ? array.rows : array.cols;
  const bool shared = array.batch == 1 && batch != 1;
  return {.rows = rows, .cols = cols, .ld = cols, .batch_stride = shared ? 0 : rows * cols};
}

Op OpOf(const NpyArray& array, bool transpose) {
  return transpose != array.column_major ? Op::kT : Op::kN;
}

// The batch of the product; matrices without one, and batches of 1, are shared by all of it.
StatusOr<int64_t> CommonBatch(const MatmulOptions& options, const Product& product) {
  const NpyArray& a = product.a;
  const NpyArray& b = product.b;
  const int64_t batch = a.batch != 1 ? a.batch : b.batch;
  if (b.batch == batch || b.batch == 1) return batch;
  return InvalidArgument("batch", options.a + " is " + ShapeText(a) + " and " + options.b + " is " +
                                      ShapeText(b) + ": batch " + std::to_string(a.batch) +
                                      " is not " + std::to_string(b.batch));
}

Status SetExtents(const MatmulOptions& options, Product* product) {
  GemmProblem& p = product->problem;
  const NpyArray& a = product->a;
  const NpyArray& b = product->b;
  p.m = options.trans_a ? a.cols : a.rows;
  p.k = options.trans_a ? a.rows : a.cols;
  p.n = options.trans_b ? b.rows : b.cols;
  const int64_t k_of_b = options.trans_b ? b.cols : b.rows;
  if (p.k != k_of_b) {
    return InvalidArgument(
        "k", options.a + " is " + ShapeText(a) + (options.trans_a ? " transposed" : "") + " and " +
                 options.b + " is " + ShapeText(b) + (options.trans_b ? " transposed" : "") +
                 ": k=" + std::to_string(p.k) + " is not " + std::to_string(k_of_b));
  }
  ASSIGN_OR_RETURN(p.batch, CommonBatch(options, *product));
  return OkStatus();
}

Status LoadC(const MatmulOptions& options, Product* product) {
  GemmProblem& p = product->problem;
  p.c = {.rows = p.m, .cols = p.n, .ld = p.n, .batch_stride = p.m * p.n};
  p.beta = options.beta.value_or(options.c.empty() ? 0 : 1);
  if (options.c.empty()) {
    if (!p.reads_c()) return OkStatus();
    return InvalidArgument("c", "beta=" + Json(p.beta).text() + " needs a --c");
  }
  ASSIGN_OR_RETURN(product->c, ReadNpy(options.c, NpyRank::kMatrix, p.type_d));
  RETURN_IF_ERROR(MakeRowMajor(&product->c));
  const NpyArray& c = product->c;
  if (c.rows != p.m || c.cols != p.n || (c.batch != 1 && c.batch != p.batch)) {
    return InvalidArgument("c", options.c + " is " + ShapeText(c) + ", d is " +
                                    std::to_string(p.batch) + "x" + std::to_string(p.m) + "x" +
                                    std::to_string(p.n));
  }
  p.c = LayoutOf(c, p.batch);
  return OkStatus();
}

Status LoadBias(const MatmulOptions& options, Product* product) {
  if (options.bias.empty()) return OkStatus();
  GemmProblem& p = product->problem;
  p.bias = options.bias_axis == "row" ? BiasAxis::kPerRow : BiasAxis::kPerColumn;
  ASSIGN_OR_RETURN(product->bias, ReadNpy(options.bias, NpyRank::kVector, p.type_d));
  if (product->bias.cols == p.bias_length()) return OkStatus();
  return InvalidArgument("bias", options.bias + " has " + std::to_string(product->bias.cols) +
                                     " elements; --bias-axis " + options.bias_axis + " takes " +
                                     std::to_string(p.bias_length()));
}

Status AllocateResult(Product* product) {
  const GemmProblem& p = product->problem;
  NpyArray& d = product->d;
  d.type = p.type_d;
  d.batch = p.batch;
  d.rows = p.m;
  d.cols = p.n;
  d.has_batch = product->a.has_batch || product->b.has_batch;
  ASSIGN_OR_RETURN(d.bytes, ResultBytes(p));
  // Beyond what any message carries: the client refuses it by its size, and never writes.
  if (d.bytes > kMaxExtent)
    return OutOfRange("d", "result d of " + std::to_string(d.bytes) +
                               " bytes exceeds the limit of " + std::to_string(kMaxExtent) +
                               " bytes of one message");
  try {
    d.data = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(d.bytes));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory for d of " + std::to_string(d.bytes) + " bytes");
  }
  return OkStatus();
}

StatusOr<Product> Load(const MatmulOptions& options) {
  Product product;
  const std::optional<DType> wanted = ParseDType(options.dtype);
  ASSIGN_OR_RETURN(product.a, ReadNpy(options.a, NpyRank::kMatrix, wanted));
  ASSIGN_OR_RETURN(product.b, ReadNpy(options.b, NpyRank::kMatrix, wanted));
  GemmProblem& p = product.problem;
  RETURN_IF_ERROR(SetExtents(options, &product));
  p.op_a = OpOf(product.a, options.trans_a);
  p.op_b = OpOf(product.b, options.trans_b);
  p.a = LayoutOf(product.a, p.batch);
  p.b = LayoutOf(product.b, p.batch);
  p.type_a = product.a.type;
  p.type_b = product.b.type;
  p.type_d = ParseDType(options.out_dtype).value_or(DefaultResultType(p.type_a));
  p.mode = options.mode == "tf32"     ? ComputeMode::kTf32
           : options.mode == "tf32x3" ? ComputeMode::kTf32x3
                                      : ComputeMode::kIeee;
  p.alpha = options.alpha;
  p.act = *ActivationFromName(options.act);
  p.deterministic = options.deterministic;
  RETURN_IF_ERROR(LoadC(options, &product));
  RETURN_IF_ERROR(LoadBias(options, &product));
  RETURN_IF_ERROR(ValidateProblem(p));
  RETURN_IF_ERROR(AllocateResult(&product));
  return product;
}

void PrintResult(const MatmulOptions& options, const Product& product, const ClientResult& result) {
  std::printf("%s: %s %s = %s of %s and %s\n", options.d.c_str(),
              std::string(Name(product.d.type)).c_str(), ShapeText(product.d).c_str(),
              ToString(product.problem).c_str(), options.a.c_str(), options.b.c_str());
  if (result.backend.empty()) {
    std::printf("backend     none: nothing to compute\n");
  } else {
    std::printf("backend     %s, device %d, lane %d\n", result.backend.c_str(), result.device,
                result.lane);
  }
  std::printf("kernel      %s, stages %d (limit: %s), split %d, chosen by: %s\n",
              result.plan.kernel.c_str(), result.plan.stages, result.plan.limit.c_str(),
              result.plan.split_k, result.plan.source.c_str());
  const PhaseTimes& t = result.phases;
  const auto time = [](Nanoseconds value) {
    return Time(std::chrono::duration<double>(value).count());
  };
  std::printf(
      "phases      decode %s, queue %s, plan %s, stage %s, h2d %s, kernel %s, d2h %s, unstage %s, "
      "total %s\n",
      time(t.decode).c_str(), time(t.queue).c_str(), time(t.plan).c_str(), time(t.stage).c_str(),
      time(t.h2d).c_str(), time(t.kernel).c_str(), time(t.d2h).c_str(), time(t.unstage).c_str(),
      time(t.total).c_str());
  if (result.stalls.measured && result.stalls.mainloop > 0) {
    const double loop = static_cast<double>(result.stalls.mainloop) / 100;
    std::printf(
        "stalls      waiting for panels %.1f %%, for free stages %.1f %% of the main loop\n",
        static_cast<double>(result.stalls.wait_full) / loop,
        static_cast<double>(result.stalls.wait_empty) / loop);
  }
  std::printf("round trip  %s, attempt %d, request %s\n", time(result.round_trip).c_str(),
              result.attempts, result.request_id.c_str());
  std::printf("speed       %.4g TFLOP/s in the kernel\n", Tflops(result));
}

int RunMatmul(const Context& context, const MatmulOptions& options) {
  const StatusOr<Product> product = Load(options);
  if (!product.ok()) return context.Fail(kExitBadInput, product.status());
  int exit_code = kExitOk;
  const std::unique_ptr<GemmClient> client = context.Connect(&exit_code);
  if (client == nullptr) return exit_code;
  CallOptions call = context.Call();
  call.request_id = options.request_id;
  call.kernel = options.kernel;
  call.stages = options.stages;
  call.split_k = options.split_k;
  const StatusOr<ClientResult> result = client->Gemm(product->problem, product->Operands(), call);
  if (!result.ok()) return context.Fail(result.status());
  if (Status written = WriteNpy(options.d, product->d); !written.ok()) {
    return context.Fail(kExitBadInput, written);
  }
  if (!context.json) {
    PrintResult(options, *product, *result);
    return kExitOk;
  }
  Json shape = Json::Array();
  if (product->d.has_batch) shape.Add(product->d.batch);
  shape.Add(product->d.rows).Add(product->d.cols);
  PrintJson(ToJson(*result)
                .Set("problem", ToString(product->problem))
                .Set("output", Json::Object()
                                   .Set("path", options.d)
                                   .Set("dtype", Name(product->d.type))
                                   .Set("shape", shape)));
  return kExitOk;
}

}  // namespace

// CLI11 takes nothing for 0.
CLI::Validator Scalar() {
  const auto check = [](const std::string& text) {
    return ParseNumber<double>(text) ? std::string() : text + " is not a number of fp64";
  };
  return {check, "NUMBER"};
}

void AddMatmul(CLI::App* app, Context* context) {
  auto options = std::make_shared<MatmulOptions>();
  CLI::App* verb = app->add_subcommand(
      "matmul", "D = act(alpha op(A) op(B) + beta C + bias), of NumPy's .npy files");
  verb->add_option("A", options->a, "A.npy: a matrix, or a batch of them")->required();
  verb->add_option("B", options->b, "B.npy")->required();
  verb->add_option("-o,--output", options->d, "Where D goes; an old file is replaced")->required();
  verb->add_option("--c", options->c, "C.npy, converted to the type of D");
  verb->add_option("--bias", options->bias, "A vector, converted to the type of D");
  verb->add_option("--bias-axis", options->bias_axis,
                   "column: bias[j] is added to column j; row: bias[i] to row i")
      ->check(CLI::IsMember({"column", "row"}))
      ->capture_default_str();
  verb->add_option("--alpha", options->alpha, "Factor of the product")
      ->check(Scalar())
      ->capture_default_str();
  verb->add_option("--beta", options->beta, "Factor of C [1 with --c, else 0]")->check(Scalar());
  verb->add_option("--act", options->act, "Activation")
      ->check(CLI::IsMember({"none", "relu", "gelu", "silu"}))
      ->capture_default_str();
  verb->add_flag("--trans-a", options->trans_a, "Multiply with A transposed");
  verb->add_flag("--trans-b", options->trans_b, "Multiply with B transposed");
  AddDType(verb, "--dtype", &options->dtype,
           "Convert A and B to this type; also says what raw bytes are");
  AddDType(verb, "--out-dtype", &options->out_dtype, "Type of D; by default what goes with A");
  verb->add_option("--mode", options->mode, "How f32 is multiplied")
      ->check(CLI::IsMember({"ieee", "tf32", "tf32x3"}))
      ->capture_default_str();
  verb->add_flag("--deterministic", options->deterministic,
                 "Only plans whose result never depends on timing");
  verb->add_option("--kernel", options->kernel, "Ask for this kernel (see gemmctl kernels)")
      ->check(Utf8());
  verb->add_option("--stages", options->stages, "Ask for this many stages")->check(Integer<int>());
  verb->add_option("--split-k", options->split_k, "Ask for this many parts of K")
      ->check(Integer<int>());
  verb->add_option("--request-id", options->request_id, "Name of the request in the server's log")
      ->check(Utf8());
  verb->callback([=] { context->run = [=] { return RunMatmul(*context, *options); }; });
}

}  // namespace gemmd::ctl
