// A stand-in for NVIDIA's management library, in shared libraries that are loaded as the real one
// is: GEMMD_FAKE_NVML with two GPUs and a slice of a third, which answers as a test says, and
// GEMMD_BARE_NVML, which has few functions and the old name of one. The first has the real one's
// soname: once it is loaded, the loader takes it for the real one.
#pragma once

#include <string>

#include <dlfcn.h>

namespace gemmd::testing {

inline constexpr const char* kFirstGpu = "GPU-11111111-1111-1111-1111-111111111111";
inline constexpr const char* kSecondGpu = "GPU-22222222-2222-2222-2222-222222222222";
inline constexpr const char* kSlice = "MIG-33333333-3333-3333-3333-333333333333";

// Thread-safe.
class FakeNvml {
 public:
  // Loads it; it stays. Null where it cannot be loaded.
  static FakeNvml* Get() {
    void* const library = dlopen(GEMMD_FAKE_NVML, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return nullptr;
    const auto get = reinterpret_cast<FakeNvml* (*)()>(dlsym(library, "gemmd_fake_nvml"));
    return get == nullptr ? nullptr : get();
  }

  virtual ~FakeNvml() = default;
  // As it was when it was loaded. Precondition: nobody uses it.
  virtual void Reset() = 0;
  // From now on `function` answers with this code; of one device where `uuid` is given.
  virtual void Answer(const std::string& function, int code, const std::string& uuid = "") = 0;
  // From now on calls of `function` do not return until Release().
  virtual void Hold(const std::string& function) = 0;
  virtual void WaitForHeld() = 0;  // until a call is held
  virtual void Release() = 0;
  virtual void WaitForCalls(const std::string& function, int count) = 0;  // in all
  virtual void WaitForUsers(int count) = 0;

  virtual int calls(const std::string& function) const = 0;
  virtual int users() const = 0;  // initialised it, and have not given it back
};

}  // namespace gemmd::testing
