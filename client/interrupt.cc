#include "client/interrupt.h"

namespace gemmd::ctl {

Interrupt::Interrupt() {
  reader_ = std::thread([this] {
    while (!over_ && signal_ == 0) signal_ = signals_.Wait(Signals::kForever);
    if (signal_ != 0) stop_.request_stop();
  });
}

Interrupt::~Interrupt() {
  over_ = true;
  signals_.Wake();
  reader_.join();
}

}  // namespace gemmd::ctl
