#include "tests/support/fake_nvml.h"

#include <cstring>
#include <map>
#include <utility>

#include "kernels/core/mutex.h"

struct FakeDevice {
  const char* uuid;
  unsigned sm_percent, memory_percent;
  unsigned long long total_bytes, used_bytes;
  unsigned milliwatts, limit_milliwatts, celsius, sm_mhz, memory_mhz;
  unsigned long long reasons;
  bool slice = false;  // NVML answers little of one
};

namespace gemmd::testing {
namespace {

constexpr int kUninitialised = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;

FakeDevice devices[] = {
    {kFirstGpu, 57, 23, 150'754'820'096, 12'345, 412'345, 700'000, 61, 1755, 3201, 0x404},
    {kSecondGpu, 3, 2, 85'899'345'920, 678, 71'500, 600'000, 34, 345, 2619, 0x1},
    {kSlice, 0, 0, 10'000, 999, 0, 0, 0, 0, 0, 0, true},
};

class Fake : public FakeNvml {
 public:
  void Reset() override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    answers_.clear();
    calls_.clear();
    held_.clear();
  }
  void Answer(const std::string& function, int code, const std::string& uuid) override
      EXCLUDES(mu_) {
    MutexLock lock(mu_);
    answers_[{function, uuid}] = code;
  }
  void Hold(const std::string& function) override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    held_ = function;
  }
  void WaitForHeld() override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    while (holding_ == 0) changed_.Wait(mu_);
  }
  void Release() override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    held_.clear();
    changed_.NotifyAll();
  }
  void WaitForCalls(const std::string& function, int count) override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    while (calls_[function] < count) changed_.Wait(mu_);
  }
  void WaitForUsers(int count) override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    while (users_ != count) changed_.Wait(mu_);
  }
  int calls(const std::string& function) const override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    const auto found = calls_.find(function);
    return found == calls_.end() ? 0 : found->second;
  }
  int users() const override EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return users_;
  }

  // What `function` answers of `uuid`; 0: what it is asked for.
  int Enter(const std::string& function, const std::string& uuid) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    ++calls_[function];
    ++holding_;
    changed_.NotifyAll();
    while (held_ == function) changed_.Wait(mu_);
    --holding_;
    if (users_ == 0) return kUninitialised;
    for (const std::string& of : {uuid, std::string()}) {
      const auto found = answers_.find({function, of});
      if (found != answers_.end()) return found->second;
    }
    return 0;
  }
  int Init() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    ++calls_["nvmlInit_v2"];
    const auto found = answers_.find({"nvmlInit_v2", ""});
    if (found != answers_.end()) return found->second;
    ++users_;
    changed_.NotifyAll();
    return 0;
  }
  int Shutdown() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    if (users_ == 0) return kUninitialised;
    --users_;
    changed_.NotifyAll();
    return 0;
  }

 private:
  mutable Mutex mu_;
  CondVar changed_;
  std::map<std::pair<std::string, std::string>, int> answers_ GUARDED_BY(mu_);
  std::map<std::string, int> calls_ GUARDED_BY(mu_);
  std::string held_ GUARDED_BY(mu_);
  int holding_ GUARDED_BY(mu_) = 0;
  int users_ GUARDED_BY(mu_) = 0;
};

Fake& TheFake() {
  static Fake& fake = *new Fake;  // outlives threads that are still in a call
  return fake;
}

// Writes `value` where `function` has no other answer of this device.
template <typename T>
int Give(const char* function, const FakeDevice* device, T value, T* out) {
  const int code = TheFake().Enter(function, device->uuid);
  if (code != 0) return code;
  if (device->slice && std::strcmp(function, "nvmlDeviceGetMemoryInfo") != 0) return kNotSupported;
  *out = value;
  return 0;
}

}  // namespace
}  // namespace gemmd::testing

// By nvml.h, of which there is no copy here. Names and types are the library's.
// NOLINTBEGIN(readability-identifier-naming)
using gemmd::testing::Give;
using gemmd::testing::TheFake;

extern "C" {

struct Rates {
  unsigned gpu, memory;
};
struct MemoryInfo {
  unsigned long long total, free, used;
};

gemmd::testing::FakeNvml* gemmd_fake_nvml() { return &TheFake(); }

int nvmlInit_v2() { return TheFake().Init(); }
int nvmlShutdown() { return TheFake().Shutdown(); }
const char* nvmlErrorString(int code) {
  return code == gemmd::testing::kNotSupported ? "Not Supported" : "Trouble";
}

int nvmlDeviceGetHandleByUUID(const char* uuid, FakeDevice** out) {
  const int code = TheFake().Enter(__func__, uuid);
  if (code != 0) return code;
  for (FakeDevice& device : gemmd::testing::devices) {
    if (std::strcmp(device.uuid, uuid) != 0) continue;
    *out = &device;
    return 0;
  }
  return gemmd::testing::kNotFound;
}
int nvmlDeviceGetUtilizationRates(FakeDevice* device, Rates* out) {
  return Give(__func__, device, {device->sm_percent, device->memory_percent}, out);
}
int nvmlDeviceGetMemoryInfo(FakeDevice* device, MemoryInfo* out) {
  const unsigned long long free = device->total_bytes - device->used_bytes;
  return Give(__func__, device, {device->total_bytes, free, device->used_bytes}, out);
}
int nvmlDeviceGetPowerUsage(FakeDevice* device, unsigned* out) {
  return Give(__func__, device, device->milliwatts, out);
}
int nvmlDeviceGetEnforcedPowerLimit(FakeDevice* device, unsigned* out) {
  return Give(__func__, device, device->limit_milliwatts, out);
}
int nvmlDeviceGetTemperature(FakeDevice* device, unsigned sensor, unsigned* out) {
  if (sensor != 0) return gemmd::testing::kInvalidArgument;
  return Give(__func__, device, device->celsius, out);
}
int nvmlDeviceGetClockInfo(FakeDevice* device, unsigned clock, unsigned* out) {
  if (clock != 1 && clock != 2) return gemmd::testing::kInvalidArgument;
  return Give(__func__, device, clock == 1 ? device->sm_mhz : device->memory_mhz, out);
}
int nvmlDeviceGetCurrentClocksEventReasons(FakeDevice* device, unsigned long long* out) {
  return Give(__func__, device, device->reasons, out);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
