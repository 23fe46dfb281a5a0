#include "kernels/cuda/cupti_sampler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/core/mutex.h"
#include "kernels/cuda/code_map.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/cupti.h"

namespace gemmd {
namespace {

// At the fullest rate an SM is sampled every 2^17 cycles: on 132 SMs at 1.9 GHz that is two million
// samples a second. CUPTI's own default fills the buffer within tenths of a second.
constexpr int kLeastPeriodLog2Cycles = 17;
constexpr int kMostPeriodLog2Cycles = 31;                  // CUPTI's
constexpr std::chrono::milliseconds kDecodeInterval{100};  // of CUPTI's threads
constexpr size_t kHardwareBufferBytes = size_t{64} << 20;  // of raw samples, until CUPTI takes them
constexpr size_t kPcs = 4096;                              // that one read takes

// --- The code that was loaded ---

class LoadedCode {  // Thread-safe.
 public:
  void Add(std::span<const std::byte> cubin) EXCLUDES(mu_) {
    for (const auto& [name, code] : FunctionsOf(cubin)) {
      std::vector<CodeRange> ranges = RangesOf(code);
      MutexLock lock(mu_);
      ranges_.insert_or_assign(name, std::move(ranges));
    }
  }
  // Empty for a function that was loaded before anybody watched.
  std::vector<CodeRange> RangesOfFunction(const std::string& name) const EXCLUDES(mu_) {
    MutexLock lock(mu_);
    const auto found = ranges_.find(name);
    return found == ranges_.end() ? std::vector<CodeRange>() : found->second;
  }

 private:
  mutable Mutex mu_;
  std::map<std::string, std::vector<CodeRange>> ranges_ GUARDED_BY(mu_);  // by mangled name
};

// Never destroyed: the driver may load code while the process ends.
LoadedCode& TheLoadedCode() {
  static auto* const kCode = new LoadedCode;
  return *kCode;
}

void CUPTIAPI OnResource(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  const auto* const resource = static_cast<const CUpti_ResourceData*>(data);
  const auto* const module =
      static_cast<const CUpti_ModuleResourceData*>(resource->resourceDescriptor);
  if (module == nullptr || module->pCubin == nullptr) return;
  TheLoadedCode().Add(std::as_bytes(std::span(module->pCubin, module->cubinSize)));
}

Status Watch() {
  ASSIGN_OR_RETURN(const Cupti* const cupti, Cupti::Get());
  CUpti_SubscriberHandle subscriber = nullptr;
  RETURN_IF_ERROR(
      cupti->ToStatus(cupti->subscribe(&subscriber, OnResource, nullptr), "cuptiSubscribe"));
  return cupti->ToStatus(cupti->enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE,
                                                CUPTI_CBID_RESOURCE_MODULE_LOADED),
                         "cuptiEnableCallback");
}

// --- The samples ---

// Memory that CUPTI writes records into.
class Records {
 public:
  Records(size_t pcs, size_t reasons) : reasons_(reasons), counts_(pcs * reasons), pcs_(pcs) {
    Reset();
  }
  // CUPTI takes what a record has room for from where it wrote how much it has.
  void Reset() {
    data_ = {};
    data_.size = sizeof data_;
    data_.collectNumPcs = pcs_.size();
    data_.pPcData = pcs_.data();
    for (size_t i = 0; i < pcs_.size(); ++i) {
      pcs_[i] = {};
      pcs_[i].size = sizeof pcs_[i];
      pcs_[i].stallReasonCount = reasons_;
      pcs_[i].stallReason = &counts_[i * reasons_];
    }
  }
  CUpti_PCSamplingData* data() { return &data_; }
  std::span<const CUpti_PCSamplingPCData> pcs() const {
    return std::span(pcs_).first(std::min(data_.totalNumPcs, pcs_.size()));
  }

 private:
  const size_t reasons_;
  std::vector<CUpti_PCSamplingStallReason> counts_;
  std::vector<CUpti_PCSamplingPCData> pcs_;
  CUpti_PCSamplingData data_{};
};

// Adds up the program counters of one function by the ranges of its code.
class FunctionSum {
 public:
  FunctionSum(int kernel, std::vector<CodeRange> ranges) : ranges_(std::move(ranges)) {
    sum_.kernel = kernel;
  }
  RangeSamples& At(uint64_t offset, size_t reasons) {
    const CodeRange range = RangeAt(offset);
    auto at = std::ranges::lower_bound(sum_.ranges, range.first, {},
                                       [](const RangeSamples& one) { return one.range.first; });
    if (at == sum_.ranges.end() || at->range.first != range.first) {
      at = sum_.ranges.insert(at, {.range = range, .by_reason = std::vector<int64_t>(reasons)});
    }
    return *at;
  }
  FunctionSamples Take() { return std::move(sum_); }

 private:
  // Code that nobody has seen is one range for each instruction.
  CodeRange RangeAt(uint64_t offset) const {
    auto after = std::ranges::upper_bound(ranges_, offset, {}, &CodeRange::first);
    if (after == ranges_.begin() || std::prev(after)->last < offset) {
      return {.first = offset, .last = offset, .kind = CodeKind::kOther};
    }
    return *std::prev(after);
  }

  const std::vector<CodeRange> ranges_;
  FunctionSamples sum_;
};

class CuptiSampler : public PcSampler {
 public:
  CuptiSampler(const Cupti* cupti, CUcontext context, std::map<std::string, int> kernels,
               uint32_t period_log2_cycles)
      : cupti_(cupti),
        context_(context),
        kernels_(std::move(kernels)),
        period_log2_cycles_(period_log2_cycles) {}

  ~CuptiSampler() override {
    if (!enabled_) return;
    CUpti_PCSamplingDisableParams params{};
    params.size = CUpti_PCSamplingDisableParamsSize;
    params.ctx = context_;
    (void)cupti_->disable(&params);
  }

  Status Enable() {
    CUpti_PCSamplingEnableParams params{};
    params.size = CUpti_PCSamplingEnableParamsSize;
    params.ctx = context_;
    RETURN_IF_ERROR(cupti_->ToStatus(cupti_->enable(&params), "cuptiPCSamplingEnable"));
    enabled_ = true;
    RETURN_IF_ERROR(FindReasons());
    kept_ = std::make_unique<Records>(kPcs, reasons_.size());
    {
      MutexLock lock(mu_);
      read_ = std::make_unique<Records>(kPcs, reasons_.size());
    }
    return Configure();
  }

  const std::vector<std::string>& reasons() const override { return reasons_; }

  StatusOr<PcSamples> Read() override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    std::map<std::string, FunctionSum> sums;  // by mangled name
    PcSamples samples;
    do {
      read_->Reset();
      CUpti_PCSamplingGetDataParams params{};
      params.size = CUpti_PCSamplingGetDataParamsSize;
      params.ctx = context_;
      params.pcSamplingData = read_->data();
      RETURN_IF_ERROR(cupti_->ToStatus(cupti_->get_data(&params), "cuptiPCSamplingGetData"));
      samples.dropped += static_cast<int64_t>(read_->data()->droppedSamples);
      for (const CUpti_PCSamplingPCData& pc : read_->pcs()) Add(pc, sums);
    } while (!read_->pcs().empty());
    for (auto& [name, sum] : sums) samples.functions.push_back(sum.Take());
    return samples;
  }

  std::chrono::milliseconds delay() const override { return 3 * kDecodeInterval; }

 private:
  // "long_scoreboard" of "smsp__pcsamp_warps_issue_stalled_long_scoreboard"; empty for what is no
  // reason, and for "..._not_issued", which is a part of the reason without it.
  static std::string_view ReasonOf(std::string_view metric) {
    constexpr std::string_view kPrefix = "smsp__pcsamp_warps_issue_stalled_";
    if (!metric.starts_with(kPrefix) || metric.ends_with("_not_issued")) return "";
    return metric.substr(kPrefix.size());
  }

  Status FindReasons() {
    size_t count = 0;
    CUpti_PCSamplingGetNumStallReasonsParams number{};
    number.size = CUpti_PCSamplingGetNumStallReasonsParamsSize;
    number.ctx = context_;
    number.numStallReasons = &count;
    RETURN_IF_ERROR(cupti_->ToStatus(cupti_->get_num_stall_reasons(&number),
                                     "cuptiPCSamplingGetNumStallReasons"));
    std::vector<uint32_t> indices(count);
    std::vector<char> text(count * CUPTI_STALL_REASON_STRING_SIZE);
    std::vector<char*> names(count);
    for (size_t i = 0; i < count; ++i) names[i] = &text[i * CUPTI_STALL_REASON_STRING_SIZE];
    CUpti_PCSamplingGetStallReasonsParams params{};
    params.size = CUpti_PCSamplingGetStallReasonsParamsSize;
    params.ctx = context_;
    params.numStallReasons = count;
    params.stallReasonIndex = indices.data();
    params.stallReasons = names.data();
    RETURN_IF_ERROR(
        cupti_->ToStatus(cupti_->get_stall_reasons(&params), "cuptiPCSamplingGetStallReasons"));
    for (size_t i = 0; i < count; ++i) {
      const std::string_view reason = ReasonOf(names[i]);
      if (reason.empty()) continue;
      reason_indices_.push_back(indices[i]);
      reasons_.emplace_back(reason);
    }
    return OkStatus();
  }

  Status Configure() {
    std::vector<CUpti_PCSamplingConfigurationInfo> settings(6);
    settings[0].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_COLLECTION_MODE;
    settings[0].attributeData.collectionModeData.collectionMode =
        CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS;
    settings[1].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_STALL_REASON;
    settings[1].attributeData.stallReasonData.stallReasonCount = reason_indices_.size();
    settings[1].attributeData.stallReasonData.pStallReasonIndex = reason_indices_.data();
    settings[2].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_HARDWARE_BUFFER_SIZE;
    settings[2].attributeData.hardwareBufferSizeData.hardwareBufferSize = kHardwareBufferBytes;
    settings[3].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_ENABLE_START_STOP_CONTROL;
    settings[3].attributeData.enableStartStopControlData.enableStartStopControl = 0;
    settings[4].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER;
    settings[4].attributeData.samplingDataBufferData.samplingDataBuffer = kept_->data();
    settings[5].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_PERIOD;
    settings[5].attributeData.samplingPeriodData.samplingPeriod = period_log2_cycles_;
    CUpti_PCSamplingConfigurationInfoParams params{};
    params.size = CUpti_PCSamplingConfigurationInfoParamsSize;
    params.ctx = context_;
    params.numAttributes = settings.size();
    params.pPCSamplingConfigurationInfo = settings.data();
    return cupti_->ToStatus(cupti_->set_configuration(&params),
                            "cuptiPCSamplingSetConfigurationAttribute");
  }

  void Add(const CUpti_PCSamplingPCData& pc, std::map<std::string, FunctionSum>& sums) const {
    // The name is CUPTI's, one for all records of a function.
    const std::string name = pc.functionName == nullptr ? "" : pc.functionName;
    auto found = sums.find(name);
    if (found == sums.end()) {
      const auto kernel = kernels_.find(name);
      found =
          sums.emplace(name, FunctionSum(kernel == kernels_.end() ? kOtherKernel : kernel->second,
                                         TheLoadedCode().RangesOfFunction(name)))
              .first;
    }
    RangeSamples& range = found->second.At(pc.pcOffset, reasons_.size());
    for (size_t i = 0; i < pc.stallReasonCount; ++i) {
      const uint32_t index = pc.stallReason[i].pcSamplingStallReasonIndex;
      const auto reason = std::ranges::find(reason_indices_, index);
      if (reason == reason_indices_.end()) continue;
      range.by_reason[static_cast<size_t>(reason - reason_indices_.begin())] +=
          pc.stallReason[i].samples;
    }
  }

  const Cupti* const cupti_;
  const CUcontext context_;
  const std::map<std::string, int> kernels_;  // by mangled name
  const uint32_t period_log2_cycles_;
  bool enabled_ = false;
  std::vector<std::string> reasons_;
  std::vector<uint32_t> reason_indices_;  // CUPTI's, of reasons_
  std::unique_ptr<Records> kept_;         // for what CUPTI must put somewhere between two reads

  Mutex mu_;
  std::unique_ptr<Records> read_ GUARDED_BY(mu_);
};

// The power of two nearest to `percent` of the fullest rate.
uint32_t PeriodLog2Cycles(double percent) {
  const double slower = std::log2(100 / percent);
  return static_cast<uint32_t>(std::lround(std::clamp<double>(
      kLeastPeriodLog2Cycles + slower, kLeastPeriodLog2Cycles, kMostPeriodLog2Cycles)));
}

StatusOr<CUcontext> CurrentContext() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  RETURN_IF_CUDA_ERROR(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, 12000,
                                                        cudaEnableDefault, &found));
  CUcontext context = nullptr;
  if (found != cudaDriverEntryPointSuccess || function == nullptr ||
      reinterpret_cast<decltype(&cuCtxGetCurrent)>(function)(&context) != CUDA_SUCCESS ||
      context == nullptr) {
    return Unavailable("the driver names no current context");
  }
  return context;
}

}  // namespace

Status WatchLoadedCode() {
  static const Status kWatched = Watch();
  return kWatched;
}

StatusOr<std::unique_ptr<PcSampler>> MakeCuptiSampler(std::map<std::string, int> kernels,
                                                      double percent) {
  RETURN_IF_ERROR(WatchLoadedCode());
  ASSIGN_OR_RETURN(const Cupti* const cupti, Cupti::Get());
  ASSIGN_OR_RETURN(CUcontext context, CurrentContext());
  auto sampler =
      std::make_unique<CuptiSampler>(cupti, context, std::move(kernels), PeriodLog2Cycles(percent));
  RETURN_IF_ERROR(sampler->Enable());
  return std::unique_ptr<PcSampler>(std::move(sampler));
}

}  // namespace gemmd
