// std::mutex with clang's thread-safety annotations, so that `clang -Wthread-safety` proves which
// fields a lock protects. Elsewhere the annotations vanish.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define GEMMD_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define GEMMD_THREAD_ANNOTATION(x)
#endif
#define CAPABILITY(x) GEMMD_THREAD_ANNOTATION(capability(x))
#define SCOPED_CAPABILITY GEMMD_THREAD_ANNOTATION(scoped_lockable)
#ifndef GUARDED_BY  // gRPC's headers bring abseil's, which means the same
#define GUARDED_BY(x) GEMMD_THREAD_ANNOTATION(guarded_by(x))
#endif
#define REQUIRES(...) GEMMD_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) GEMMD_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) GEMMD_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) GEMMD_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace gemmd {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mu_.lock(); }
  void unlock() RELEASE() { mu_.unlock(); }

 private:
  std::mutex mu_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mu) ACQUIRE(mu) : mu_(mu) { mu_.lock(); }
  ~MutexLock() RELEASE() { mu_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// Waits on a Mutex that the caller holds.
//   while (queue_.empty()) cv_.Wait(mu_);
class CondVar {
 public:
  void Wait(Mutex& mu) REQUIRES(mu) { cv_.wait(mu); }
  // False when `deadline` passed first.
  template <typename TimePoint>
  bool WaitUntil(Mutex& mu, TimePoint deadline) REQUIRES(mu) {
    return cv_.wait_until(mu, deadline) == std::cv_status::no_timeout;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable_any cv_;
};

}  // namespace gemmd
