#include "server/config.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Env = std::map<std::string, std::string>;

StatusOr<Invocation> Parse(const std::vector<std::string>& args, const Env& env = {}) {
  const GetEnv getenv = [&env](const char* name) -> const char* {
    const auto found = env.find(name);
    return found == env.end() ? nullptr : found->second.c_str();
  };
  return ParseInvocation(args, getenv, "1.2.3");
}

Config ParseOk(const std::vector<std::string>& args, const Env& env = {}) {
  StatusOr<Invocation> out = Parse(args, env);
  EXPECT_TRUE(out.ok()) << out.status().ToString();
  return out.ok() ? out->config : Config{};
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) : path_(::testing::TempDir() + Name()) {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  static std::string Name() {
    return std::string("gemmd_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() +
           ".toml";
  }
  const std::string path_;
};

TEST(ConfigTest, OneFileForTwoPurposesIsRefused) {
  const ConfigFile file("lanes = 1\n");
  const std::string& path = file.path();
  const std::string again = ::testing::TempDir() + "./" + path.substr(path.rfind('/') + 1);
  const auto refusal = [](const std::vector<std::string>& args) {
    return Parse(args).status().message();
  };
  EXPECT_EQ(refusal({"--config", path, "--port-file", again}),
            "port-file=" + again + " is the file of config too");
  EXPECT_EQ(refusal({"--config", path, "--tuning-file", again}),
            "tuning-file=" + again + " is the file of config too");
  EXPECT_EQ(refusal({"--tuning-file", "/no/such", "--port-file", "/no/../no/such"}),
            "port-file=/no/../no/such is the file of tuning-file too");
  EXPECT_EQ(refusal({"--tuning-file", "/no/such", "--port-file", "/no/such.lock"}),
            "port-file=/no/such.lock is the file of tuning-file's lock too");
  EXPECT_EQ(refusal({"--config", path, "--tuning-file", path + "1", "--port-file", path + "2"}),
            "");
}

TEST(ConfigTest, DefaultsAreLoopbackWithMetrics) {
  const Config config = ParseOk({});
  EXPECT_EQ(config.listen, (Endpoint{"127.0.0.1", 50051}));
  EXPECT_EQ(config.metrics, (Endpoint{"127.0.0.1", 9464}));
  EXPECT_TRUE(config.metrics_enabled);
  EXPECT_TRUE(config.gpu_gauges);
  EXPECT_FALSE(config.allow_remote);
  EXPECT_EQ(config.backend.choice, BackendChoice::kAuto);
  EXPECT_TRUE(config.backend.devices.empty());
  EXPECT_EQ(config.max_message_bytes, 64 << 20);
  EXPECT_EQ(config.max_reply_bytes, int64_t{2} << 30);
  EXPECT_EQ(config.drain_timeout, std::chrono::seconds(30));
  EXPECT_EQ(config.reader_timeout, std::chrono::seconds(30));
  EXPECT_FALSE(config.background_tuning);
  EXPECT_EQ(config.background_share_percent, 10);
}

TEST(ConfigTest, EverySettingIsRead) {
  const Config config = ParseOk({"--listen",
                                 "localhost:0",
                                 "--metrics=off",
                                 "--gpu-gauges=off",
                                 "--port-file",
                                 "/tmp/ports",
                                 "--backend",
                                 "cpu",
                                 "--devices",
                                 "0,2",
                                 "--lanes",
                                 "7",
                                 "--device-pool",
                                 "3GiB",
                                 "--pinned-pool=256MiB",
                                 "--cpu-threads",
                                 "5",
                                 "--max-message",
                                 "2047MiB",
                                 "--max-queue",
                                 "9",
                                 "--max-reply-bytes=3GiB",
                                 "--max-queue-bytes",
                                 "1 GiB",
                                 "--drain-timeout",
                                 "1500ms",
                                 "--reader-timeout=2s",
                                 "--tuning-file",
                                 "/tmp/tuning.json",
                                 "--background-tuning=on",
                                 "--background-share",
                                 "25",
                                 "--log-format",
                                 "json",
                                 "--log-level",
                                 "debug",
                                 "--allow-remote"});
  EXPECT_EQ(config.listen, (Endpoint{"localhost", 0}));
  EXPECT_FALSE(config.metrics_enabled);
  EXPECT_FALSE(config.gpu_gauges);
  EXPECT_EQ(config.port_file, "/tmp/ports");
  EXPECT_EQ(config.backend.choice, BackendChoice::kCpu);
  EXPECT_EQ(config.backend.devices, (std::vector<int>{0, 2}));
  EXPECT_EQ(config.backend.lanes, 7);
  EXPECT_EQ(config.backend.device_pool_bytes, int64_t{3} << 30);
  EXPECT_EQ(config.backend.pinned_pool_bytes, int64_t{256} << 20);
  EXPECT_EQ(config.backend.cpu_threads, 5);
  EXPECT_EQ(config.max_message_bytes, int64_t{2047} << 20);
  EXPECT_EQ(config.max_queued_requests, 9);
  EXPECT_EQ(config.max_queued_bytes, int64_t{1} << 30);
  EXPECT_EQ(config.max_reply_bytes, int64_t{3} << 30);
  EXPECT_EQ(config.drain_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(config.reader_timeout, std::chrono::seconds(2));
  EXPECT_EQ(config.tuning_file, "/tmp/tuning.json");
  EXPECT_TRUE(config.background_tuning);
  EXPECT_EQ(config.background_share_percent, 25);
  EXPECT_EQ(config.log_format, LogFormat::kJson);
  EXPECT_EQ(config.log_level, LogLevel::kDebug);
  EXPECT_TRUE(config.allow_remote);
}

TEST(ConfigTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const ConfigFile file("lanes = 2\nmax-queue = 20\ncpu-threads = 3\n");
  const Env env = {{"GEMMD_LANES", "5"}, {"GEMMD_MAX_QUEUE", "50"}};
  const Config config = ParseOk({"--config", file.path(), "--lanes", "6"}, env);
  EXPECT_EQ(config.backend.lanes, 6);
  EXPECT_EQ(config.max_queued_requests, 50);
  EXPECT_EQ(config.backend.cpu_threads, 3);
  EXPECT_EQ(config.max_message_bytes, 64 << 20);
}

TEST(ConfigTest, EnvironmentNamesTheFileAndSetsFlags) {
  const ConfigFile file("listen = \"127.0.0.1:7\"\n");
  const Config config = ParseOk(
      {},
      {{"GEMMD_CONFIG", file.path()}, {"GEMMD_ALLOW_REMOTE", "true"}, {"GEMMD_TUNING_FILE", "/t"}});
  EXPECT_EQ(config.listen.port, 7);
  EXPECT_EQ(config.tuning_file, "/t");
  EXPECT_TRUE(config.allow_remote);
}

TEST(ConfigTest, EnvironmentCanTurnAFlagOfTheFileOff) {
  const ConfigFile file("allow-remote = true\n");
  EXPECT_TRUE(ParseOk({"--config", file.path()}).allow_remote);
  EXPECT_FALSE(ParseOk({"--config", file.path()}, {{"GEMMD_ALLOW_REMOTE", "false"}}).allow_remote);
}

TEST(ConfigTest, PrintedConfigReadsBackAsItself) {
  const std::vector<std::string> args = {"--listen",       "[::1]:0",
                                         "--metrics",      "off",
                                         "--port-file",    "/tmp/a \"b\"\\c#\td",
                                         "--devices",      "1,3",
                                         "--max-message",  "123456",
                                         "--allow-remote", "--log-format",
                                         "json",           "--drain-timeout",
                                         "1500ms",         "--tuning-file",
                                         "/tmp/t.json"};
  std::vector<std::string> print = args;
  print.push_back("--print-config");
  const StatusOr<Invocation> printed = Parse(print);
  ASSERT_TRUE(printed.ok()) << printed.status().ToString();
  EXPECT_FALSE(printed->serve);
  EXPECT_EQ(printed->text, ParseOk(args).ToString());

  const ConfigFile file(printed->text);
  EXPECT_EQ(ParseOk({"--config", file.path()}).ToString(), printed->text);
}

TEST(ConfigTest, PcSamplingIsAPercentageOrOff) {
  EXPECT_EQ(ParseOk({}).backend.pc_sampling_percent, 1);
  const std::pair<const char*, double> texts[] = {{"off", 0},     {"0", 0},       {"-0", 0},
                                                  {"0%", 0},      {"1", 1},       {"1%", 1},
                                                  {"0.5 %", 0.5}, {"1e-3", 1e-3}, {"100", 100}};
  for (const auto& [text, percent] : texts) {
    const Config config = ParseOk({std::string("--pc-sampling=") + text});
    EXPECT_EQ(config.backend.pc_sampling_percent, percent) << text;
  }
  EXPECT_EQ(ParseOk({}, {{"GEMMD_PC_SAMPLING", "2%"}}).backend.pc_sampling_percent, 2);
  EXPECT_EQ(Parse({"--pc-sampling="}).status().message(),
            "--pc-sampling has no value; --pc-sampling=VALUE takes one that begins with --");
  const ConfigFile empty("pc-sampling = \"\"\n");
  EXPECT_EQ(Parse({"--config", empty.path()}).status().field(), "pc-sampling");
  const ConfigFile file("pc-sampling = 7\n");
  EXPECT_EQ(ParseOk({"--config", file.path()}).backend.pc_sampling_percent, 7);
}

TEST(ConfigTest, EveryPercentageIsPrintedAsItWasGiven) {
  EXPECT_THAT(ParseOk({"--pc-sampling=0"}).ToString(), HasSubstr("pc-sampling = \"off\""));
  for (int tenths = 1; tenths <= 1000; ++tenths) {
    const std::string text =
        std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10));
    EXPECT_THAT(ParseOk({"--pc-sampling", text}).ToString(),
                HasSubstr("pc-sampling = \"" + text + "%\""));
  }
}

TEST(ConfigTest, DefaultsPrintedReadBackAsDefaults) {
  const ConfigFile file(Config{}.ToString());
  EXPECT_EQ(ParseOk({"--config", file.path()}).ToString(), Config{}.ToString());
  EXPECT_EQ(ParseOk({}).ToString(), Config{}.ToString());
}

TEST(ConfigTest, HelpAndVersionDoNotServe) {
  const StatusOr<Invocation> version = Parse({"--version"});
  ASSERT_TRUE(version.ok());
  EXPECT_FALSE(version->serve);
  EXPECT_EQ(version->text, "gemmd 1.2.3\n");
  const StatusOr<Invocation> help = Parse({"--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_FALSE(help->serve);
  EXPECT_THAT(help->text, AllOf(HasSubstr("--max-message"), HasSubstr("GEMMD_MAX_MESSAGE")));
}

TEST(ConfigTest, AddressBeyondLoopbackNeedsAllowRemote) {
  for (const char* address : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.example.org:1", "host:1"}) {
    for (const std::string flag : {"listen", "metrics"}) {
      if (flag == "metrics" && address[0] == '[') continue;  // refused for what it is
      const StatusOr<Invocation> out = Parse({"--" + flag, address});
      ASSERT_FALSE(out.ok()) << flag << address;
      EXPECT_EQ(out.status().field(), flag);
      EXPECT_THAT(out.status().message(), AllOf(HasSubstr(address), HasSubstr("--allow-remote")));
      EXPECT_TRUE(Parse({"--" + flag, address, "--allow-remote"}).ok()) << flag << address;
    }
  }
  for (const char* address : {"127.0.0.1:1", "127.3.2.1:1", "localhost:1", "[::1]:1"}) {
    EXPECT_TRUE(Parse({"--listen", address}).ok()) << address;
  }
}

struct BadSetting {
  const char* field;
  const char* value;
  const char* limit;  // part of the message
};

void PrintTo(const BadSetting& bad, std::ostream* out) { *out << bad.field << '=' << bad.value; }

class BadSettingTest : public ::testing::TestWithParam<BadSetting> {};

TEST_P(BadSettingTest, IsRefusedWithFieldValueAndLimit) {
  const auto& [field, value, limit] = GetParam();
  const StatusOr<Invocation> out = Parse({std::string("--") + field + "=" + value});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(out.status().field(), field);
  EXPECT_THAT(out.status().message(),
              AllOf(HasSubstr(std::string(field) + "=" + value), HasSubstr(limit)));
}

INSTANTIATE_TEST_SUITE_P(
    ConfigTest, BadSettingTest,
    ::testing::Values(
        BadSetting{"pc-sampling", "-1", "from 0 to 100"},
        BadSetting{"pc-sampling", "101", "from 0 to 100"},
        BadSetting{"pc-sampling", "100.1%", "from 0 to 100"},
        BadSetting{"pc-sampling", "x", "off nor a percentage"},
        BadSetting{"pc-sampling", "nan", "from 0 to 100"},
        BadSetting{"pc-sampling", "inf", "from 0 to 100"},
        BadSetting{"pc-sampling", "%", "from 0 to 100"},
        BadSetting{"pc-sampling", "1%%", "from 0 to 100"},
        BadSetting{"pc-sampling", "on", "from 0 to 100"},
        BadSetting{"listen", "50051", "HOST:PORT"}, BadSetting{"listen", "::1:5", "brackets"},
        BadSetting{"listen", "unix:/tmp/x", "65535"}, BadSetting{"listen", "/tmp/x:1", "HOST:PORT"},
        BadSetting{"listen", "localhost:65536", "65535"},
        BadSetting{"listen", "localhost:-1", "65535"}, BadSetting{"listen", "localhost:", "65535"},
        BadSetting{"metrics", "no", "HOST:PORT"}, BadSetting{"backend", "gpu", "auto, cuda, cpu"},
        BadSetting{"devices", "0,,1", "0 to 63"}, BadSetting{"devices", "64", "0 to 63"},
        BadSetting{"devices", "-1", "0 to 63"}, BadSetting{"devices", "1,1", "once"},
        BadSetting{"lanes", "0", "1 to 64"}, BadSetting{"lanes", "65", "1 to 64"},
        BadSetting{"lanes", "four", "1 to 64"}, BadSetting{"lanes", "4.5", "1 to 64"},
        BadSetting{"lanes", "99999999999999999999", "1 to 64"},
        BadSetting{"device-pool", "4GB", "64MiB"}, BadSetting{"device-pool", "1KiB", "1048576"},
        BadSetting{"pinned-pool", "-1MiB", "64MiB"}, BadSetting{"cpu-threads", "-1", "0 to 1024"},
        BadSetting{"max-message", "2048MiB", "2146435072"},
        BadSetting{"max-message", "9999999TiB", "2^63"},
        BadSetting{"max-message", "65535", "65536"},
        BadSetting{"max-reply-bytes", "63MiB", "67108864"},
        BadSetting{"metrics", "[::1]:9464", "IPv6"}, BadSetting{"max-queue", "0", "1 to 1000000"},
        BadSetting{"max-queue-bytes", "MiB", "64MiB"},
        BadSetting{"drain-timeout", "30h", "24 hours"},
        BadSetting{"background-tuning", "sometimes", "not on or off"},
        BadSetting{"background-share", "0", "from 1 to 100"},
        BadSetting{"background-share", "101", "from 1 to 100"},
        BadSetting{"drain-timeout", "99999999999999999s", "24 hours"},
        BadSetting{"drain-timeout", "-1s", "24 hours"},
        BadSetting{"reader-timeout", "soon", "24 hours"},
        BadSetting{"log-format", "xml", "console, json"},
        BadSetting{"log-level", "loud", "debug, info, warn, error"}));

TEST(ConfigTest, UnknownFlagAndUnknownKeyAreRefused) {
  EXPECT_THAT(Parse({"--lames=4"}).status().message(), HasSubstr("lames"));
  const ConfigFile file("lames = 4\n");
  EXPECT_THAT(Parse({"--config", file.path()}).status().message(), HasSubstr("lames"));
}

TEST(ConfigTest, WhatIsNotOneKeyWithOneValueInTheFileIsNamedWithItsLine) {
  const std::pair<const char*, const char*> bad_files[] = {
      {"lanes = [5]", "lanes has an array"},
      {"lanes = [5,6]", "lanes has an array"},
      {"lanes = 5\nlanes = 6", "line 2: lanes comes twice"},
      {"lanes = 5\nmax-queue = 3\nlanes = 6", "line 3: lanes comes twice"},
      {"lanes 5", "key = value"},
      {"lanes", "key = value"},
      {"allow-remote", "key = value"},
      {"lanes =", "lanes has no value"},
      {"= 5", "key = value"},
      {"x", "key = value"},
      {"[server]\nlanes = 5", "line 1: tables"},
      {"server.lanes = 5", "key = value"},
      {"lanes = \"5", "does not end"},
      {"lanes = 5 6", "lanes has more after its value"},
      {"lanes = \"5\" x", "lanes has more after its value"},
      {"lanes = 5,6", "lanes its value"},
      {"max-message = 64MiB", "quotes"},
      {"port-file = \"a\\qb\"", "bad escape"},
      {"print-config = true", "print-config is not a setting"},
      {"config = \"x\"", "config is not a setting"},
      {"LANES = 5", "LANES is not a setting"},
      {"\x01\x02\xff", "key = value"},
  };
  for (const auto& [text, why] : bad_files) {
    const ConfigFile file(text);
    const StatusOr<Invocation> out = Parse({"--config", file.path()});
    ASSERT_FALSE(out.ok()) << text;
    EXPECT_EQ(out.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(out.status().message(), AllOf(HasSubstr(file.path()), HasSubstr(why))) << text;
  }
}

TEST(ConfigTest, FileTakesStringsLiteralsNumbersAndComments) {
  const ConfigFile file(
      "# all of it\n\n  lanes=7 # seven\nlisten = 'localhost:8'\r\nallow-remote = true\n"
      "port-file = \"/tmp/#\\\"\\\\x\" # not a comment before");
  const Config config = ParseOk({"--config", file.path()});
  EXPECT_EQ(config.backend.lanes, 7);
  EXPECT_EQ(config.listen, (Endpoint{"localhost", 8}));
  EXPECT_TRUE(config.allow_remote);
  EXPECT_EQ(config.port_file, "/tmp/#\"\\x");
}

TEST(ConfigTest, FlagWithoutAValueDoesNotTakeTheNextFlagAsOne) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--port-file", "--print-config"}, {"--lanes"}, {"--config"}}) {
    const StatusOr<Invocation> out = Parse(args);
    ASSERT_FALSE(out.ok()) << args.front();
    EXPECT_THAT(out.status().message(), HasSubstr(args.front() + " has no value"));
  }
  EXPECT_EQ(ParseOk({"--port-file=--odd"}).port_file, "--odd");
}

TEST(ConfigTest, TimesTakeFractionsAndUnits) {
  const auto drain = [](const char* text) {
    return ParseOk({"--drain-timeout", text}).drain_timeout;
  };
  EXPECT_EQ(drain("0"), std::chrono::milliseconds(0));
  EXPECT_EQ(drain("90"), std::chrono::seconds(90));
  EXPECT_EQ(drain("1.5s"), std::chrono::milliseconds(1500));
  EXPECT_EQ(drain("24h"), std::chrono::hours(24));
}

TEST(ConfigTest, FolderIsNoConfigFile) {
  EXPECT_EQ(Parse({"--config", ::testing::TempDir()}).status().code(), StatusCode::kNotFound);
}

TEST(ConfigTest, MissingConfigFileIsNamed) {
  const StatusOr<Invocation> out = Parse({"--config", "/nonexistent/gemmd.toml"});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(out.status().message(), HasSubstr("/nonexistent/gemmd.toml"));
}

TEST(ConfigTest, AConfigFileThatIsTooLongIsRefusedByItsLimit) {
  const Status status = Parse({"--config", "/dev/zero"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "config: /dev/zero is longer than the limit of 1048576 bytes");
}

TEST(LogTest, JsonEscapesQuotesControlsAndBrokenUtf8) {
  EXPECT_EQ(JsonEscaped("a\"b\\c\n\t\x01"), "a\\\"b\\\\c\\u000a\\u0009\\u0001");
  EXPECT_EQ(JsonEscaped("h\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"),
            "h\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(JsonEscaped("\xFFx"), bad + "x");
  EXPECT_EQ(JsonEscaped("\xC3"), bad);                      // cut short
  EXPECT_EQ(JsonEscaped("\xC0\xAF"), bad + bad);            // overlong
  EXPECT_EQ(JsonEscaped("\xED\xA0\x80"), bad + bad + bad);  // surrogate
}

}  // namespace
}  // namespace gemmd
