// When a failed call is tried again, and after how long. Pure: no clock, no sleeping.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "kernels/core/status.h"

namespace gemmd {

struct RetryPolicy {
  int max_retries = 4;
  std::chrono::milliseconds initial_backoff{50};
  std::chrono::milliseconds max_backoff{2000};

  // The wait before attempt number `attempts_made` + 1; nullopt: give up. Only UNAVAILABLE is
  // retried, and only when the wait leaves time before the deadline, `remaining` from now. The
  // server's retry_after is the least wait. `jitter` in [0, 1) spreads callers over the upper half
  // of the backoff.
  std::optional<std::chrono::milliseconds> NextDelay(const Status& status, int attempts_made,
                                                     std::chrono::milliseconds remaining,
                                                     double jitter) const {
    if (status.code() != StatusCode::kUnavailable || attempts_made > max_retries) {
      return std::nullopt;
    }
    std::chrono::milliseconds backoff = initial_backoff;
    for (int i = 1; i < attempts_made && backoff < max_backoff; ++i) backoff *= 2;
    backoff = std::min(backoff, max_backoff);
    std::chrono::milliseconds delay(
        static_cast<int64_t>(static_cast<double>(backoff.count()) * (0.5 + 0.5 * jitter)));
    if (status.retry_after()) delay = std::max(delay, *status.retry_after());
    if (delay >= remaining) return std::nullopt;
    return delay;
  }
};

}  // namespace gemmd
