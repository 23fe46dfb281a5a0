#include "server/rpc/call_counter.h"

#include <string_view>

#include <grpcpp/server_context.h>

namespace gemmd {
namespace {

using grpc::experimental::InterceptionHookPoints;

// Of one call, as long as it lives. gRPC runs the hooks of a call one after the other.
class CallCounter final : public grpc::experimental::Interceptor {
 public:
  CallCounter(CallObserver* observer, int method, const grpc::ServerContextBase* context)
      : observer_(observer), method_(method), context_(context) {
    observer_->CallStarted(method_);
  }
  // A call whose connection broke, or whose message the transport refused, may see no status.
  ~CallCounter() override { End(StatusCode::kCancelled); }
  CallCounter(const CallCounter&) = delete;
  CallCounter& operator=(const CallCounter&) = delete;

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const auto code = static_cast<StatusCode>(methods->GetSendStatus().error_code());
      // So gRPC's own health service ends a watch whose caller has gone.
      const bool gone = code == StatusCode::kUnknown && context_->IsCancelled();
      End(gone ? StatusCode::kCancelled : code);
    }
    methods->Proceed();
  }

 private:
  void End(StatusCode code) {
    if (ended_) return;
    ended_ = true;
    observer_->CallEnded(method_, code);
  }

  CallObserver* const observer_;
  const int method_;
  const grpc::ServerContextBase* const context_;  // gRPC's, as long as the call lives
  bool ended_ = false;
};

class CallCounterFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallCounterFactory(CallObserver* observer) : observer_(observer) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    std::string_view path = info->method() == nullptr ? "" : info->method();
    if (!path.empty() && path.front() == '/') path.remove_prefix(1);
    return new CallCounter(observer_, CallMethodOf(path), info->server_context());
  }

 private:
  CallObserver* const observer_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> CallCounters(
    CallObserver* observer) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> out;
  out.push_back(std::make_unique<CallCounterFactory>(observer));
  return out;
}

}  // namespace gemmd
