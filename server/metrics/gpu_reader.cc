#include "server/metrics/gpu_reader.h"

#include <utility>

namespace gemmd {

StatusOr<std::unique_ptr<GpuReader>> GpuReader::Open(const std::string& library,
                                                     const std::vector<GpuDevice>& devices,
                                                     std::shared_ptr<spdlog::logger> log) {
  ASSIGN_OR_RETURN(std::unique_ptr<Nvml> nvml, Nvml::Load(library));
  std::unique_ptr<GpuReader> reader(new GpuReader(std::move(nvml), std::move(log)));
  for (const GpuDevice& device : devices) {
    State state;
    state.ordinal = device.ordinal;
    const StatusOr<Nvml::Device> found = reader->nvml_->Find(device.uuid);
    if (found.ok()) {
      state.device = *found;
    } else {
      reader->log_->warn("device {} ({}) has no gemmd_gpu_ metrics: {}", device.ordinal,
                         device.uuid, found.status().message());
    }
    reader->states_.push_back(state);
  }
  return reader;
}

GpuReader::GpuReader(std::unique_ptr<Nvml> nvml, std::shared_ptr<spdlog::logger> log)
    : nvml_(std::move(nvml)), log_(std::move(log)) {}

template <typename T>
std::optional<T> GpuReader::Ask(State& state, size_t query, const char* name,
                                StatusOr<T> (Nvml::*read)(Nvml::Device device) const) {
  State::Query& asked = state.queries[query];
  if (!state.device || asked.never) return std::nullopt;
  const StatusOr<T> answer = ((*nvml_).*read)(*state.device);
  if (answer.ok()) return *answer;
  const Status& status = answer.status();
  if (status.code() == StatusCode::kUnavailable) {
    state.device.reset();
    log_->warn("device {} has no gemmd_gpu_ metrics any more: {}", state.ordinal, status.message());
    return std::nullopt;
  }
  asked.never = status.code() == StatusCode::kUnimplemented;
  if (!std::exchange(asked.told, true)) {
    log_->warn("device {} has no {}{}: {}", state.ordinal, name, asked.never ? "" : " for now",
               status.message());
  }
  return std::nullopt;
}

std::optional<GpuSample> GpuReader::Read(size_t index) {
  State& state = states_[index];
  GpuSample sample;
  for (size_t i = 0; i < std::size(kGpuGauges); ++i) {
    sample.values[i] = Ask(state, i, kGpuGauges[i].name, kGpuGauges[i].read);
  }
  sample.clocks_event_reasons =
      Ask(state, std::size(kGpuGauges), kThrottleName, &Nvml::ClocksEventReasons);
  if (!state.device) return std::nullopt;
  return sample;
}

}  // namespace gemmd
