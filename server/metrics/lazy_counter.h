// A counter that is exported from its first use on.
#pragma once

#include <atomic>

#include <prometheus/counter.h>
#include <prometheus/family.h>

namespace gemmd {

class LazyCounter {  // Thread-safe. One set of labels of one family, the same at each use.
 public:
  // `labels` makes them; it is called until the counter is there, by all who come meanwhile: the
  // family answers them with the same counter.
  template <typename MakeLabels>
  prometheus::Counter& Of(prometheus::Family<prometheus::Counter>& family,
                          const MakeLabels& labels) {
    prometheus::Counter* made = counter_.load(std::memory_order_acquire);
    if (made == nullptr) {
      made = &family.Add(labels());
      counter_.store(made, std::memory_order_release);
    }
    return *made;
  }

 private:
  std::atomic<prometheus::Counter*> counter_{nullptr};
};

}  // namespace gemmd
