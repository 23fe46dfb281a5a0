#include "server/metrics/nvml.h"

#include <type_traits>
#include <utility>

#include <dlfcn.h>

namespace gemmd {
namespace {

// What follows is NVML's binary interface, which its nvml.h promises to keep.
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kFunctionNotFound = 13;
constexpr int kGpuIsLost = 15;

constexpr int kTemperatureOfGpu = 0;
constexpr int kClockOfSm = 1;
constexpr int kClockOfMemory = 2;

struct Utilization {
  unsigned sm;      // percent
  unsigned memory;  // percent
};
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

template <typename... Args>
struct Function {
  const char* name;
  int (*call)(Args...) = nullptr;  // null: this library has no such function
};

}  // namespace

struct Nvml::Library {
  explicit Library(std::string library_name) : name(std::move(library_name)) {}
  ~Library() {
    if (initialised) shutdown.call();
    if (handle != nullptr) dlclose(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  Status Open();

  // UNIMPLEMENTED where the library lacks the function.
  template <typename... Args>
  Status Call(const Function<Args...>& function, std::type_identity_t<Args>... args) const {
    if (function.call == nullptr) {
      return Unimplemented(name + " has no " + function.name);
    }
    return ToStatus(function.name, function.call(args...));
  }

  const std::string name;
  void* handle = nullptr;
  bool initialised = false;

  Function<> init{"nvmlInit_v2"};
  Function<> shutdown{"nvmlShutdown"};
  Function<const char*, Device*> find{"nvmlDeviceGetHandleByUUID"};
  Function<Device, Utilization*> utilization{"nvmlDeviceGetUtilizationRates"};
  Function<Device, Memory*> memory{"nvmlDeviceGetMemoryInfo"};
  Function<Device, unsigned*> power{"nvmlDeviceGetPowerUsage"};
  Function<Device, unsigned*> power_limit{"nvmlDeviceGetEnforcedPowerLimit"};
  Function<Device, int, unsigned*> temperature{"nvmlDeviceGetTemperature"};
  Function<Device, int, unsigned*> clock{"nvmlDeviceGetClockInfo"};
  Function<Device, unsigned long long*> reasons{"nvmlDeviceGetCurrentClocksEventReasons"};

 private:
  template <typename... Args>
  void Resolve(Function<Args...>& function) {
    function.call = reinterpret_cast<int (*)(Args...)>(dlsym(handle, function.name));
  }
  Status ToStatus(const char* function, int result) const;

  const char* (*error_text_)(int) = nullptr;
};

Status Nvml::Library::Open() {
  handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return Unavailable(why == nullptr ? name + " cannot be loaded" : why);
  }
  Resolve(init);
  Resolve(shutdown);
  Resolve(find);
  if (init.call == nullptr || shutdown.call == nullptr || find.call == nullptr) {
    return Unavailable(name + " has not all of " + init.name + ", " + shutdown.name + " and " +
                       find.name);
  }
  Resolve(utilization);
  Resolve(memory);
  Resolve(power);
  Resolve(power_limit);
  Resolve(temperature);
  Resolve(clock);
  Resolve(reasons);
  if (reasons.call == nullptr) {  // drivers before 535
    reasons.name = "nvmlDeviceGetCurrentClocksThrottleReasons";
    Resolve(reasons);
  }
  error_text_ = reinterpret_cast<const char* (*)(int)>(dlsym(handle, "nvmlErrorString"));
  const Status status = Call(init);
  if (!status.ok()) return Unavailable(name + ": " + status.message());
  initialised = true;
  return OkStatus();
}

Status Nvml::Library::ToStatus(const char* function, int result) const {
  if (result == kSuccess) return OkStatus();
  const std::string message =
      std::string(function) + " answers " + std::to_string(result) +
      (error_text_ == nullptr ? "" : std::string(" (") + error_text_(result) + ")");
  switch (result) {
    case kNotSupported:
    case kFunctionNotFound: return Unimplemented(message);
    case kNotFound: return NotFound(message);
    case kGpuIsLost: return Unavailable(message);
    default: return Internal(message);
  }
}

StatusOr<std::unique_ptr<Nvml>> Nvml::Load(const std::string& library) {
  auto opened = std::make_unique<Library>(library);
  RETURN_IF_ERROR(opened->Open());
  return std::unique_ptr<Nvml>(new Nvml(std::move(opened)));
}

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::~Nvml() = default;

StatusOr<Nvml::Device> Nvml::Find(const std::string& uuid) const {
  Device device = nullptr;
  Status status = library_->Call(library_->find, uuid.c_str(), &device);
  // Of a slice of a device (MIG) CUDA tells the 16 bytes alone, and NVML calls it otherwise.
  if (status.code() == StatusCode::kNotFound && uuid.starts_with("GPU-")) {
    const std::string slice = "MIG-" + uuid.substr(4);
    if (library_->Call(library_->find, slice.c_str(), &device).ok()) return device;
  }
  RETURN_IF_ERROR(status);
  return device;
}

StatusOr<double> Nvml::SmUtilization(Device device) const {
  Utilization percent{};
  RETURN_IF_ERROR(library_->Call(library_->utilization, device, &percent));
  return percent.sm / 100.0;
}

StatusOr<double> Nvml::MemoryUtilization(Device device) const {
  Utilization percent{};
  RETURN_IF_ERROR(library_->Call(library_->utilization, device, &percent));
  return percent.memory / 100.0;
}

StatusOr<double> Nvml::MemoryUsed(Device device) const {
  Memory bytes{};
  RETURN_IF_ERROR(library_->Call(library_->memory, device, &bytes));
  return static_cast<double>(bytes.used);
}

StatusOr<double> Nvml::MemoryTotal(Device device) const {
  Memory bytes{};
  RETURN_IF_ERROR(library_->Call(library_->memory, device, &bytes));
  return static_cast<double>(bytes.total);
}

StatusOr<double> Nvml::Power(Device device) const {
  unsigned milliwatts = 0;
  RETURN_IF_ERROR(library_->Call(library_->power, device, &milliwatts));
  return milliwatts / 1e3;
}

StatusOr<double> Nvml::PowerLimit(Device device) const {
  unsigned milliwatts = 0;
  RETURN_IF_ERROR(library_->Call(library_->power_limit, device, &milliwatts));
  return milliwatts / 1e3;
}

StatusOr<double> Nvml::Temperature(Device device) const {
  unsigned celsius = 0;
  RETURN_IF_ERROR(library_->Call(library_->temperature, device, kTemperatureOfGpu, &celsius));
  return celsius;
}

StatusOr<double> Nvml::SmClock(Device device) const {
  unsigned mhz = 0;
  RETURN_IF_ERROR(library_->Call(library_->clock, device, kClockOfSm, &mhz));
  return mhz * 1e6;
}

StatusOr<double> Nvml::MemoryClock(Device device) const {
  unsigned mhz = 0;
  RETURN_IF_ERROR(library_->Call(library_->clock, device, kClockOfMemory, &mhz));
  return mhz * 1e6;
}

StatusOr<uint64_t> Nvml::ClocksEventReasons(Device device) const {
  unsigned long long bits = 0;
  RETURN_IF_ERROR(library_->Call(library_->reasons, device, &bits));
  return uint64_t{bits};
}

}  // namespace gemmd
