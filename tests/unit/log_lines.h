// A logger whose lines a test reads.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

namespace gemmd::testing {

class LogLines {  // Thread-safe; outlives who logs.
 public:
  LogLines() { sink_->set_pattern("%l %v"); }

  const std::shared_ptr<spdlog::logger>& logger() const { return logger_; }
  // "warning device 0 ..."
  std::vector<std::string> lines() const {
    sink_->flush();  // takes the sink's lock after every writer
    std::vector<std::string> lines;
    std::istringstream text(text_.str());
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_ =
      std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
  const std::shared_ptr<spdlog::logger> logger_ = std::make_shared<spdlog::logger>("test", sink_);
};

}  // namespace gemmd::testing
