// How long a refused caller should wait before it tries again, and what a server that ends says.
#pragma once

#include <chrono>

#include "kernels/core/status.h"

namespace gemmd {

inline constexpr std::chrono::milliseconds kRetryWhenFull{100};
// Long enough for a restart, or for a balancer to take this server out.
inline constexpr std::chrono::milliseconds kRetryWhenAway{1000};

inline Status Draining() {
  return Unavailable("the server is draining").WithRetryAfter(kRetryWhenAway);
}

}  // namespace gemmd
