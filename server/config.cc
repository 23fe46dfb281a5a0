#include "server/config.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "kernels/core/checked.h"
#include "kernels/core/files.h"
#include "kernels/core/text.h"
#include "server/config_file.h"

namespace gemmd {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// The largest whole number of MiB below protobuf's 2 GiB.
constexpr int64_t kMaxMessageBytes = 2047 * kMiB;
// Room for the longest reply of the calls that describe the server.
constexpr int64_t kMinMessageBytes = 64 << 10;
constexpr int64_t kMaxPoolBytes = int64_t{1} << 40;

// Every setting as text, the way flags, file and environment give it.
struct Texts {
  std::string listen = "127.0.0.1:50051";
  std::string metrics = "127.0.0.1:9464";
  std::string gpu_gauges = "on";
  std::string pc_sampling = "1%";
  std::string allow_remote = "false";
  std::string port_file;
  std::string backend = "auto";
  std::string devices = "all";
  std::string lanes = "4";
  std::string device_pool = "4GiB";
  std::string pinned_pool = "1GiB";
  std::string cpu_threads = "0";
  std::string max_message = "64MiB";
  std::string max_queue = "1024";
  std::string max_queue_bytes = "2GiB";
  std::string max_reply_bytes = "2GiB";
  std::string drain_timeout = "30s";
  std::string reader_timeout = "30s";
  std::string tuning_file;
  std::string background_tuning = "off";
  std::string background_share = "10";
  std::string log_format = "console";
  std::string log_level = "info";
};

struct Setting {
  const char* name;  // of flag and key; GEMMD_ and capitals for the environment
  std::string Texts::*text;
  const char* type;
  const char* help;
};
constexpr Setting kSettings[] = {
    {"listen", &Texts::listen, "HOST:PORT", "Address of the gRPC service; port 0 takes a free one"},
    {"metrics", &Texts::metrics, "HOST:PORT", "Address of /metrics, or off"},
    {"gpu-gauges", &Texts::gpu_gauges, "on|off",
     "Power, clocks and so on of the GPUs in /metrics; off where another exporter has them"},
    {"pc-sampling", &Texts::pc_sampling, "off|PERCENT",
     "Rate at which GPUs sample what their warps wait for, of the fullest, 0 to 100%"},
    {"port-file", &Texts::port_file, "PATH", "Write the bound addresses here once serving"},
    {"backend", &Texts::backend, "auto|cuda|cpu", "What multiplies"},
    {"devices", &Texts::devices, "N,N,...", "CUDA ordinals, or all"},
    {"lanes", &Texts::lanes, "N", "Products in flight per device, 1 to 64"},
    {"device-pool", &Texts::device_pool, "SIZE", "Device memory per device"},
    {"pinned-pool", &Texts::pinned_pool, "SIZE", "Pinned host memory per device"},
    {"cpu-threads", &Texts::cpu_threads, "N", "BLAS threads of the cpu backend; 0: all cores"},
    {"max-message", &Texts::max_message, "SIZE", "Largest request or reply, 64KiB to 2047MiB"},
    {"max-queue", &Texts::max_queue, "N", "Most requests that may wait"},
    {"max-queue-bytes", &Texts::max_queue_bytes, "SIZE", "Most bytes that may wait"},
    {"max-reply-bytes", &Texts::max_reply_bytes, "SIZE",
     "Most bytes of results that wait, run, or are not read by their caller yet"},
    {"drain-timeout", &Texts::drain_timeout, "TIME",
     "How long SIGTERM lets work finish; a bare number is of seconds"},
    {"reader-timeout", &Texts::reader_timeout, "TIME",
     "How long a Study waits for a caller who takes none of its points"},
    {"tuning-file", &Texts::tuning_file, "PATH",
     "Keep what tuning learns here, in a file of this server alone"},
    {"background-tuning", &Texts::background_tuning, "on|off",
     "Time plans of served problems while nothing else runs"},
    {"background-share", &Texts::background_share, "PERCENT",
     "Most of wall time that background tuning may take, 1 to 100"},
    {"log-format", &Texts::log_format, "console|json", "Form of the log on standard error"},
    {"log-level", &Texts::log_level, "LEVEL", "debug, info, warn or error"},
};

std::string EnvName(std::string_view setting) {
  std::string name = "GEMMD_";
  for (const char c : setting) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

Status Refuse(const std::string& field, const std::string& value, const std::string& why) {
  return InvalidArgument(field, field + "=" + value + " " + why);
}

StatusOr<int64_t> ParseInt(const std::string& field, const std::string& text, int64_t low,
                           int64_t high) {
  const std::optional<int64_t> value = ParseNumber<int64_t>(text);
  if (!value || *value < low || *value > high) {
    return Refuse(
        field, text,
        "is not a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return *value;
}

StatusOr<int64_t> ParseBytesIn(const std::string& field, const std::string& text, int64_t low,
                               int64_t high) {
  ASSIGN_OR_RETURN(const int64_t bytes, ParseBytes(field, text));
  if (bytes < low || bytes > high) {
    return Refuse(field, text,
                  "is " + std::to_string(bytes) + " bytes, outside " + std::to_string(low) +
                      " to " + std::to_string(high));
  }
  return bytes;
}

StatusOr<std::chrono::milliseconds> ParseTime(const std::string& field, const std::string& text) {
  constexpr double kMaxSeconds = 24 * 3600;
  const std::optional<double> seconds = ParseSeconds(text);
  if (!seconds || *seconds > kMaxSeconds) {
    return Refuse(field, text, "is not a time such as 500ms, 30s or 5m of at most 24 hours");
  }
  return std::chrono::milliseconds(std::llround(*seconds * 1e3));
}

StatusOr<Endpoint> ParseEndpoint(const std::string& field, const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (host.empty() || (host.find(':') != std::string::npos && !bracketed) ||
      host.find('/') != std::string::npos) {
    return Refuse(field, text, "is not HOST:PORT (IPv6 addresses in brackets)");
  }
  const std::optional<int64_t> port =
      ParseNumber<int64_t>(std::string_view(text).substr(colon + 1));
  if (!port || *port < 0 || *port > 65535) {
    return Refuse(field, text, "has no port from 0 to 65535 after the colon");
  }
  return Endpoint{host, static_cast<int>(*port)};
}

bool IsLoopback(const Endpoint& endpoint) {
  if (endpoint.host == "localhost" || endpoint.host == "[::1]") return true;
  // Only a dotted quad: "127.example.org" is a name.
  return endpoint.host.starts_with("127.") &&
         endpoint.host.find_first_not_of("0123456789.") == std::string::npos;
}

Status CheckReach(const std::string& field, const Endpoint& endpoint, bool allow_remote) {
  if (allow_remote || IsLoopback(endpoint)) return OkStatus();
  return Refuse(field, endpoint.ToString(),
                "is not a loopback address, and others can reach it without authentication; "
                "--allow-remote permits that");
}

// `words` are what the setting's own help calls it: "on or off".
StatusOr<bool> ParseBool(const std::string& field, const std::string& text,
                         const std::string& words) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "off" || text == "no") return false;
  return Refuse(field, text, "is not " + words);
}

template <typename T>
StatusOr<T> ParseChoice(const std::string& field, const std::string& text,
                        std::initializer_list<std::pair<const char*, T>> choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (text == name) return value;
    names += std::string(names.empty() ? "" : ", ") + name;
  }
  return Refuse(field, text, "is not one of " + names);
}

StatusOr<std::vector<int>> ParseDevices(const std::string& text) {
  std::vector<int> devices;
  if (text == "all" || text.empty()) return devices;
  constexpr int64_t kMaxOrdinal = 63;
  for (const std::string_view part : Split(text, ',')) {
    const std::optional<int64_t> ordinal = ParseNumber<int64_t>(part);
    if (!ordinal || *ordinal < 0 || *ordinal > kMaxOrdinal) {
      return Refuse("devices", text, "is neither all nor ordinals from 0 to 63 with commas");
    }
    if (std::find(devices.begin(), devices.end(), *ordinal) != devices.end()) {
      return Refuse("devices", text,
                    "names device " + std::to_string(*ordinal) +
                        " twice; once is "
                        "the limit");
    }
    devices.push_back(static_cast<int>(*ordinal));
  }
  return devices;
}

// "off", "1%", "0.5", "100 %"; 0 is off too.
StatusOr<double> ParsePercent(const std::string& field, const std::string& text) {
  if (text == "off") return 0.0;
  std::string_view number = text;
  if (number.ends_with('%')) number.remove_suffix(1);
  if (number.ends_with(' ')) number.remove_suffix(1);
  const std::optional<double> percent = ParseNumber<double>(number);
  if (percent && *percent >= 0 && *percent <= 100) return *percent;
  return Refuse(field, text, "is neither off nor a percentage from 0 to 100");
}

Status FillNetwork(const Texts& texts, Config* config) {
  ASSIGN_OR_RETURN(config->allow_remote,
                   ParseBool("allow-remote", texts.allow_remote, "true or false"));
  ASSIGN_OR_RETURN(config->listen, ParseEndpoint("listen", texts.listen));
  RETURN_IF_ERROR(CheckReach("listen", config->listen, config->allow_remote));
  config->metrics_enabled = texts.metrics != "off";
  if (config->metrics_enabled) {
    ASSIGN_OR_RETURN(config->metrics, ParseEndpoint("metrics", texts.metrics));
    if (config->metrics.host.front() == '[') {
      return Refuse("metrics", texts.metrics,
                    "is an IPv6 address, which /metrics has not; 127.0.0.1:PORT is one it has");
    }
    RETURN_IF_ERROR(CheckReach("metrics", config->metrics, config->allow_remote));
  }
  ASSIGN_OR_RETURN(config->gpu_gauges, ParseBool("gpu-gauges", texts.gpu_gauges, "on or off"));
  ASSIGN_OR_RETURN(config->backend.pc_sampling_percent,
                   ParsePercent("pc-sampling", texts.pc_sampling));
  config->port_file = texts.port_file;
  return OkStatus();
}

Status FillBackend(const Texts& texts, BackendOptions* backend) {
  ASSIGN_OR_RETURN(backend->choice, ParseChoice<BackendChoice>("backend", texts.backend,
                                                               {{"auto", BackendChoice::kAuto},
                                                                {"cuda", BackendChoice::kCuda},
                                                                {"cpu", BackendChoice::kCpu}}));
  ASSIGN_OR_RETURN(backend->devices, ParseDevices(texts.devices));
  ASSIGN_OR_RETURN(const int64_t lanes, ParseInt("lanes", texts.lanes, 1, 64));
  backend->lanes = static_cast<int>(lanes);
  ASSIGN_OR_RETURN(backend->device_pool_bytes,
                   ParseBytesIn("device-pool", texts.device_pool, kMiB, kMaxPoolBytes));
  ASSIGN_OR_RETURN(backend->pinned_pool_bytes,
                   ParseBytesIn("pinned-pool", texts.pinned_pool, kMiB, kMaxPoolBytes));
  ASSIGN_OR_RETURN(const int64_t threads, ParseInt("cpu-threads", texts.cpu_threads, 0, 1024));
  backend->cpu_threads = static_cast<int>(threads);
  return OkStatus();
}

Status FillLimits(const Texts& texts, Config* config) {
  ASSIGN_OR_RETURN(config->max_message_bytes, ParseBytesIn("max-message", texts.max_message,
                                                           kMinMessageBytes, kMaxMessageBytes));
  ASSIGN_OR_RETURN(const int64_t queue, ParseInt("max-queue", texts.max_queue, 1, 1'000'000));
  config->max_queued_requests = static_cast<int>(queue);
  ASSIGN_OR_RETURN(config->max_queued_bytes,
                   ParseBytesIn("max-queue-bytes", texts.max_queue_bytes, 4096, kMaxPoolBytes));
  ASSIGN_OR_RETURN(config->max_reply_bytes, ParseBytesIn("max-reply-bytes", texts.max_reply_bytes,
                                                         config->max_message_bytes, kMaxPoolBytes));
  ASSIGN_OR_RETURN(config->drain_timeout, ParseTime("drain-timeout", texts.drain_timeout));
  ASSIGN_OR_RETURN(config->reader_timeout, ParseTime("reader-timeout", texts.reader_timeout));
  config->tuning_file = texts.tuning_file;
  ASSIGN_OR_RETURN(config->background_tuning,
                   ParseBool("background-tuning", texts.background_tuning, "on or off"));
  ASSIGN_OR_RETURN(const int64_t share,
                   ParseInt("background-share", texts.background_share, 1, 100));
  config->background_share_percent = static_cast<int>(share);
  ASSIGN_OR_RETURN(config->log_format, ParseChoice<LogFormat>("log-format", texts.log_format,
                                                              {{"console", LogFormat::kConsole},
                                                               {"json", LogFormat::kJson}}));
  ASSIGN_OR_RETURN(config->log_level, ParseChoice<LogLevel>("log-level", texts.log_level,
                                                            {{"debug", LogLevel::kDebug},
                                                             {"info", LogLevel::kInfo},
                                                             {"warn", LogLevel::kWarn},
                                                             {"error", LogLevel::kError}}));
  return OkStatus();
}

std::string* TextOf(const std::string& name, Texts* texts) {
  if (name == "allow-remote") return &texts->allow_remote;
  for (const Setting& setting : kSettings) {
    if (name == setting.name) return &(texts->*setting.text);
  }
  return nullptr;
}

Status ReadFile(const std::string& path, Texts* texts) {
  ASSIGN_OR_RETURN(const auto settings, ReadConfigFile(path));
  for (const auto& [name, value] : settings) {
    std::string* const text = TextOf(name, texts);
    if (text == nullptr) {
      return InvalidArgument(name, "config=" + path + ": " + name + " is not a setting");
    }
    *text = value;
  }
  return OkStatus();
}

// A variable that is empty counts as none.
void ReadEnvironment(const GetEnv& getenv, Texts* texts) {
  const auto read = [&](const char* name) {
    const char* const value = getenv(EnvName(name).c_str());
    if (value != nullptr && *value != '\0') *TextOf(name, texts) = value;
  };
  for (const Setting& setting : kSettings) read(setting.name);
  read("allow-remote");
}

// A name without a value would take the flag that follows as its value.
Status CheckValues(const std::vector<std::string>& args) {
  Texts ignored;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].starts_with("--")) continue;
    const size_t equals = args[i].find('=');
    const std::string name = args[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    if (name != "config" && TextOf(name, &ignored) == nullptr) continue;
    if (equals != std::string::npos ? equals + 1 < args[i].size() : name == "allow-remote")
      continue;
    if (equals != std::string::npos || i + 1 == args.size() || args[i + 1].starts_with("--")) {
      return InvalidArgument(
          name, "--" + name + " has no value; --" + name + "=VALUE takes one that begins with --");
    }
    ++i;
  }
  return OkStatus();
}

// The server writes two of them, and removes what an earlier one left at port-file.
Status CheckFilesDiffer(const std::string& config_path, const Config& config) {
  const std::pair<std::string, std::string> files[] = {
      {"config", config_path},
      {"tuning-file", config.tuning_file},
      {"tuning-file's lock", config.tuning_file.empty() ? "" : config.tuning_file + ".lock"},
      {"port-file", config.port_file}};
  for (size_t i = 0; i < std::size(files); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const auto& [name, path] = files[i];
      if (path.empty() || files[j].second.empty() || !SameFile(path, files[j].second)) continue;
      return Refuse(name, path, "is the file of " + files[j].first + " too");
    }
  }
  return OkStatus();
}

struct CommandLine {
  Texts texts;
  std::string config;
  bool print_config = false, show_version = false, show_help = false;
  std::string help;
};

// The flags of `args` over `texts`; the last of two wins.
StatusOr<CommandLine> ParseFlags(const Texts& texts, const std::vector<std::string>& args) {
  CommandLine out;
  out.texts = texts;
  CLI::App app{
      "gemmd multiplies matrices for callers over gRPC, on CUDA devices or on the CPU.\n"
      "Sizes: 512, 64KiB, 64MiB, 2GiB. Times: 500ms, 30s, 5m; a bare\n"
      "number is of bytes or seconds.",
      "gemmd"};
  for (const Setting& setting : kSettings) {
    app.add_option(std::string("--") + setting.name, out.texts.*setting.text, setting.help)
        ->type_name(setting.type)
        ->default_str(out.texts.*setting.text)
        ->envname(EnvName(setting.name))
        ->take_last();
  }
  app.add_flag("--allow-remote{true}", out.texts.allow_remote,
               "Permit addresses other than loopback: there is no authentication")
      ->envname(EnvName("allow-remote"))
      ->take_last();
  app.add_option("--config", out.config, "Read settings from this TOML file")
      ->type_name("PATH")
      ->envname(EnvName("config"))
      ->take_last();
  app.add_flag("--print-config", out.print_config, "Print the effective settings and exit");
  app.add_flag("--version", out.show_version, "Print the version and exit");
  std::vector<std::string> all = args;
  std::reverse(all.begin(), all.end());  // the order that CLI11 takes a vector in
  try {
    app.parse(all);
  } catch (const CLI::CallForHelp&) {
    out.show_help = true;
    out.help = app.help();
  } catch (const CLI::Error& error) {
    return InvalidArgument("", error.what());
  }
  return out;
}

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kUnits[unit];
}

}  // namespace

StatusOr<int64_t> ParseBytes(const std::string& field, const std::string& text) {
  constexpr std::pair<std::string_view, int64_t> kUnits[] = {
      {"", 1},          {"B", 1},         {"KiB", 1024},
      {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", int64_t{1} << 40}};
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string_view unit = std::string_view(text).substr(digits);
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, scale] : kUnits) {
    if (unit != name) continue;
    const std::optional<int64_t> bytes =
        CheckedMul(ParseNumber<int64_t>(std::string_view(text).substr(0, digits)), scale);
    if (bytes) return *bytes;
    break;
  }
  return Refuse(field, text, "is not a size such as 512, 64KiB, 64MiB or 2GiB below 2^63 bytes");
}

std::string Config::ToString() const {
  std::string device_list;
  for (const int device : backend.devices) {
    device_list += (device_list.empty() ? "" : ",") + std::to_string(device);
  }
  constexpr const char* kBackends[] = {"auto", "cuda", "cpu"};
  const std::pair<const char*, std::string> lines[] = {
      {"listen", listen.ToString()},
      {"metrics", metrics_enabled ? metrics.ToString() : "off"},
      {"gpu-gauges", gpu_gauges ? "on" : "off"},
      {"pc-sampling",
       backend.pc_sampling_percent > 0 ? Exact(backend.pc_sampling_percent) + "%" : "off"},
      {"allow-remote", allow_remote ? "true" : "false"},
      {"port-file", port_file},
      {"backend", kBackends[static_cast<int>(backend.choice)]},
      {"devices", device_list.empty() ? "all" : device_list},
      {"lanes", std::to_string(backend.lanes)},
      {"device-pool", BytesText(backend.device_pool_bytes)},
      {"pinned-pool", BytesText(backend.pinned_pool_bytes)},
      {"cpu-threads", std::to_string(backend.cpu_threads)},
      {"max-message", BytesText(max_message_bytes)},
      {"max-queue", std::to_string(max_queued_requests)},
      {"max-queue-bytes", BytesText(max_queued_bytes)},
      {"max-reply-bytes", BytesText(max_reply_bytes)},
      {"drain-timeout", std::to_string(drain_timeout.count()) + "ms"},
      {"reader-timeout", std::to_string(reader_timeout.count()) + "ms"},
      {"tuning-file", tuning_file},
      {"background-tuning", background_tuning ? "on" : "off"},
      {"background-share", std::to_string(background_share_percent)},
      {"log-format", std::string(Name(log_format))},
      {"log-level", std::string(Name(log_level))},
  };
  std::string out;
  for (const auto& [name, value] : lines)
    out += std::string(name) + " = " + QuotedForConfigFile(value) + "\n";
  return out;
}

StatusOr<Invocation> ParseInvocation(const std::vector<std::string>& args, const GetEnv& getenv,
                                     const std::string& version) {
  RETURN_IF_ERROR(CheckValues(args));
  Texts texts;
  ASSIGN_OR_RETURN(CommandLine line, ParseFlags(texts, args));
  Invocation out;
  if (line.show_help || line.show_version) {
    out.serve = false;
    out.text = line.show_help ? line.help : "gemmd " + version + "\n";
    return out;
  }
  const char* const config = getenv(EnvName("config").c_str());
  const std::string path = line.config.empty() && config != nullptr ? config : line.config;
  if (!path.empty()) RETURN_IF_ERROR(ReadFile(path, &texts));
  ReadEnvironment(getenv, &texts);
  ASSIGN_OR_RETURN(line, ParseFlags(texts, args));
  RETURN_IF_ERROR(FillNetwork(line.texts, &out.config));
  RETURN_IF_ERROR(FillBackend(line.texts, &out.config.backend));
  RETURN_IF_ERROR(FillLimits(line.texts, &out.config));
  RETURN_IF_ERROR(CheckFilesDiffer(path, out.config));
  if (line.print_config) {
    out.serve = false;
    out.text = out.config.ToString();
  }
  return out;
}

}  // namespace gemmd
