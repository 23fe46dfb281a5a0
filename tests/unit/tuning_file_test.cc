#include "server/tuning/tuning_file.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/problems.h"
#include "tests/unit/tuning_file_fixture.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(TuningFileTest, GivesBackAllThatWasLearnt) {
  TunedPlanner planner(H200Traits());
  std::vector<GemmProblem> problems(8, Problem(512, 768, 1024));
  problems[1].op_a = Op::kT, problems[1].op_b = Op::kT;
  problems[2].type_d = DType::kF32;
  problems[3].batch = 3;
  problems[4].batch = 4;
  problems[5].beta = 0.5, problems[5].act = Activation::kGelu;
  problems[6].bias = BiasAxis::kPerRow, problems[6].m = 520;
  problems[7].alpha = -1.0 / 3.0, problems[7].n = 760;
  for (GemmProblem& p : problems) p = WithPackedLayouts(p);
  problems[3].a.batch_stride = 0;
  problems[4].b.batch_stride = 0;
  for (const GemmProblem& p : problems) {
    TuningEntry entry{p, {}};
    const std::vector<Plan> plans = planner.model().Candidates(p);
    for (size_t i = 0; i < plans.size(); i += 17) {
      entry.plans.push_back({plans[i], 1e-6 / 3 * static_cast<double>(i + 1)});
    }
    ASSERT_TRUE(planner.Learn(entry));
  }
  ASSERT_TRUE(File().Save({&planner}).ok());

  TunedPlanner other(H200Traits());
  const StatusOr<LoadedTuning> loaded = File().Load({&other});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->problems, 8);
  EXPECT_EQ(loaded->skipped, 0);
  const std::vector<TuningEntry> before = planner.Learnt(), after = other.Learnt();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(ToString(after[i].problem), ToString(before[i].problem));
    EXPECT_EQ(TimingTraits(after[i].problem), TimingTraits(before[i].problem)) << i;
    EXPECT_EQ(after[i].problem.alpha, before[i].problem.alpha);
    EXPECT_EQ(after[i].problem.beta, before[i].problem.beta);
    EXPECT_EQ(after[i].problem.bias, before[i].problem.bias);
    EXPECT_EQ(after[i].problem.act, before[i].problem.act);
    ASSERT_EQ(after[i].plans.size(), before[i].plans.size());
    for (size_t j = 0; j < before[i].plans.size(); ++j) {
      EXPECT_TRUE(SameLaunch(after[i].plans[j].plan, before[i].plans[j].plan));
      EXPECT_EQ(after[i].plans[j].seconds, before[i].plans[j].seconds) << "to the last bit";
    }
  }
}

TEST_F(TuningFileTest, GivesBackACalibrationToTheLastBit) {
  Calibration calibration = kH200Calibration;
  calibration.tma->latency_clocks = 2000.0 / 3;
  calibration.cp_async.bytes_per_clock = 100.0 / 3;
  TunedPlanner planner(H200Traits());
  ASSERT_TRUE(planner.Calibrate(calibration).ok());
  ASSERT_TRUE(File().Save({&planner}).ok());
  TunedPlanner other(H200Traits());
  const StatusOr<LoadedTuning> loaded = File().Load({&other});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->calibrated, 1);
  EXPECT_EQ(other.calibration(), calibration);

  DeviceTraits ampere = H200Traits();
  ampere.compute_capability = 80;
  calibration.tma.reset();
  TunedPlanner without_tma(ampere), loads_it(ampere);
  ASSERT_TRUE(without_tma.Calibrate(calibration).ok());
  ASSERT_TRUE(File().Save({&without_tma}).ok());
  ASSERT_TRUE(File().Load({&loads_it}).ok());
  EXPECT_EQ(loads_it.calibration(), calibration);
}

TEST_F(TuningFileTest, WithoutACalibrationThereIsNone) {
  SaveOne();
  EXPECT_THAT(Read(), Not(HasSubstr("calibration")));
  TunedPlanner planner(H200Traits());
  const StatusOr<LoadedTuning> loaded = File().Load({&planner});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->calibrated, 0);
  EXPECT_TRUE(loaded->calibration.ok());
  EXPECT_FALSE(planner.calibration());
}

TEST_F(TuningFileTest, ACalibrationThatCannotBeIsLeftOutAndTheProblemsAreLearnt) {
  for (const char* const value : {"0", "-1", "1e300", "\"NaN\"", "\"Infinity\""}) {
    TunedPlanner planner(H200Traits());
    ASSERT_TRUE(planner.Learn(
        {Problem(512, 512, 512), {{{.row = RowByName("cp_async_64x64x64"), .stages = 2}, 1e-5}}}));
    Calibration calibration = kH200Calibration;
    calibration.cp_async.latency_clocks = 777;
    ASSERT_TRUE(planner.Calibrate(calibration).ok());
    ASSERT_TRUE(File().Save({&planner}).ok());
    Replace(R"("latency_clocks": 777)", std::string(R"("latency_clocks": )") + value);
    TunedPlanner other(H200Traits());
    const StatusOr<LoadedTuning> loaded = File().Load({&other});
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_EQ(loaded->problems, 1);
    EXPECT_EQ(loaded->calibrated, 0);
    EXPECT_THAT(loaded->calibration.message(), HasSubstr("cp_async.latency_clocks="));
    EXPECT_FALSE(other.calibration());
  }
}

TEST_F(TuningFileTest, SaysWhatItIsOf) {
  SaveOne();
  EXPECT_THAT(Read(),
              AllOf(HasSubstr(R"("format_version": 2)"), HasSubstr(R"("device": "NVIDIA H200")"),
                    HasSubstr(R"("driver_version": 13000)"),
                    HasSubstr(std::string("\"build\": \"") + kBuild), HasSubstr(R"("date": "20)"),
                    HasSubstr(R"("kernel": "cp_async_64x64x64")"), HasSubstr(R"("layout": "NN")")));
}

TEST_F(TuningFileTest, AFileThatIsNotThereIsNotFound) {
  EXPECT_EQ(LoadError().code(), StatusCode::kNotFound);
}

TEST_F(TuningFileTest, OfAnotherDeviceDriverOrBuildIsRefusedWithBoth) {
  SaveOne();
  DeviceTraits other = H200Traits();
  other.name = "NVIDIA H100";
  EXPECT_EQ(LoadError(other).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(LoadError(other).message(),
              HasSubstr("device=NVIDIA H200, where this server has NVIDIA H100"));
  other = H200Traits();
  other.sm_count = 66;
  EXPECT_THAT(LoadError(other).message(), HasSubstr("sm_count=132, where this server has 66"));
  other = H200Traits();
  other.driver_version = 13010;
  EXPECT_THAT(LoadError(other).message(), HasSubstr("driver_version=13000"));
  other = H200Traits();
  other.compute_capability = 100;
  EXPECT_THAT(LoadError(other).message(), HasSubstr("compute_capability=90"));
  EXPECT_THAT(LoadError(H200Traits(), "0.2.0 (abc)").message(),
              HasSubstr("build=0.1.0 (abc), where this server has 0.2.0 (abc)"));
  EXPECT_EQ(LoadError(CpuTraits()).code(), StatusCode::kFailedPrecondition);
}

TEST_F(TuningFileTest, WhatAFileSaysIsShortAndPrintableInAMessage) {
  SaveOne();
  Replace("NVIDIA H200", "\\u001b[2J\\n" + std::string(1'000'000, 'x'));
  const Status status = LoadError();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("device=?[2J?xxx"));
  EXPECT_LT(status.message().size(), 400U);
}

TEST_F(TuningFileTest, OfAnotherOrdinalOfTheSameDeviceHolds) {
  SaveOne();
  DeviceTraits other = H200Traits();
  other.ordinal = 3, other.uuid = "GPU-3";
  TunedPlanner planner(other);
  EXPECT_TRUE(File().Load({&planner}).ok());
  EXPECT_EQ(planner.entries(), 1U);
}

TEST_F(TuningFileTest, OfANewerFormatIsRefusedWhateverElseItSays) {
  SaveOne();
  Replace(R"("format_version": 2)", R"("format_version": 3, "new_field": [1])");
  const Status status = LoadError();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("format_version=3 is above the limit 2"));
}

TEST_F(TuningFileTest, OfAnOlderFormatIsRefused) {
  Write(R"({"format_version": 1, "device": "NVIDIA H200", "problems": []})");
  const Status status = LoadError();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("format_version=1 is below the limit 2"));
}

TEST_F(TuningFileTest, CutShortAnywhereIsRefused) {
  SaveOne();
  const std::string whole = Read();
  const size_t end = whole.rfind('}');
  for (size_t length = 0; length <= end; ++length) {
    Write(whole.substr(0, length));
    ASSERT_EQ(LoadError().code(), StatusCode::kDataLoss) << length << " of " << whole.size();
  }
}

TEST_F(TuningFileTest, DamagedAnywhereNeverCrashesOrTeachesNonsense) {
  SaveOne();
  const std::string whole = Read();
  constexpr unsigned kSeed = 7;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  for (int round = 0; round < 2000; ++round) {
    std::string text = whole;
    for (unsigned flips = 1 + random() % 3; flips > 0; --flips) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    Write(text);
    TunedPlanner planner(H200Traits());
    (void)File().Load({&planner});
    for (const TuningEntry& entry : planner.Learnt()) {
      EXPECT_TRUE(ValidateProblem(entry.problem).ok());
      EXPECT_TRUE(planner.PlanFor(entry.problem).ok());
    }
  }
}

TEST_F(TuningFileTest, WhatIsNoTuningFileIsDamaged) {
  for (const char* text : {"", "{}", "null", "[]", "\177ELF", "{\"format_version\": -1}",
                           "{\"format_version\": \"one\"}"}) {
    Write(text);
    EXPECT_EQ(LoadError().code(), StatusCode::kDataLoss) << text;
  }
  Write(std::string(100'000, '['));
  EXPECT_EQ(LoadError().code(), StatusCode::kDataLoss);
}

TEST_F(TuningFileTest, ProblemsThatThisServerCannotRunAreSkippedAndCounted) {
  SaveOne();
  const std::string whole = Read();
  const auto skipped = [this, &whole](const std::string& from, const std::string& to) {
    Write(whole);
    Replace(from, to);
    TunedPlanner planner(H200Traits());
    const StatusOr<LoadedTuning> loaded = File().Load({&planner});
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_EQ(loaded->problems, 0) << to;
    EXPECT_EQ(loaded->skipped, 1) << to;
    EXPECT_EQ(planner.entries(), 0U) << to;
  };
  skipped("cp_async_64x64x64", "a_kernel_of_tomorrow");
  skipped(R"("stages": 2)", R"("stages": 99)");
  skipped(R"("split_k": 1)", R"("split_k": -1)");
  skipped(R"("m": 512)", R"("m": -512)");
  skipped(R"("m": 512)", R"("m": 0)");
  skipped(R"("batch": 1)", R"("batch": 0)");
  skipped(R"("layout": "NN")", R"("layout": "NX")");
  skipped(R"("layout": "NN")", R"("layout": "NNN")");
  skipped(R"("type_a": "bf16")", R"("type_a": "f99")");
  skipped(R"("type_a": "bf16")", R"("type_a": "i8")");
  skipped(R"("compute_mode": "ieee")", R"("compute_mode": "")");
  skipped(R"("bias": "none")", R"("bias": "both")");
  skipped(R"("activation": "none")", R"("activation": "tanh")");
  skipped(R"("alpha": 1)", R"("alpha": "NaN")");
  skipped(R"("seconds": 1e-05)", R"("seconds": -1)");
  skipped(R"("seconds": 1e-05)", R"("seconds": "Infinity")");
}

TEST_F(TuningFileTest, TooLargeIsRefusedBeforeItIsRead) {
  Write("{}");
  std::filesystem::resize_file(path_, static_cast<uintmax_t>(TuningFile::kMaxBytes) + 1);
  const Status status = LoadError();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("67108865 bytes, more than the limit 67108864"));
}

TEST_F(TuningFileTest, AFolderOrAPipeIsRefusedAtOnce) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(LoadError().code(), StatusCode::kInvalidArgument);
  ASSERT_EQ(rmdir(path_.c_str()), 0);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(LoadError().code(), StatusCode::kInvalidArgument);
}

TEST_F(TuningFileTest, MoreThanATableHoldsIsCountedAndKept) {
  SaveOne();
  std::string text = Read();
  const size_t begin = text.find('{', text.find("problems")),
               end = text.rfind('}', text.rfind(']', text.rfind(']') - 1));
  const std::string one = text.substr(begin, end + 1 - begin);
  std::string more;
  for (int i = 1; i <= 20'003; ++i) {
    more += (i > 1 ? "," : "") + Replaced(one, R"("m": 512)", "\"m\": " + std::to_string(i));
  }
  Write(text.replace(begin, one.size(), more));
  TunedPlanner planner(H200Traits());
  TuningFile file(path_, kBuild);
  const StatusOr<LoadedTuning> loaded = file.Load({&planner});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->problems, 20'000);
  EXPECT_EQ(loaded->dropped, 3);
  ASSERT_TRUE(file.Save({&planner}).ok());
  EXPECT_TRUE(std::filesystem::exists(path_ + ".old"));
}

TEST_F(TuningFileTest, AFullTableFitsTheLimit) {
  TunedPlanner planner(H200Traits());
  const std::vector<Plan> plans = planner.model().Candidates(Problem(8192, 8192, 8192));
  TuningEntry entry{Problem(8192, 8192, 8192), {}};
  for (const Plan& plan : plans) entry.plans.push_back({plan, 1.2345678901234567e-5});
  for (size_t i = 0; i < 100; ++i) {
    entry.problem = Problem(2'000'000'000 + static_cast<int64_t>(i), 8192, 8192);
    ASSERT_TRUE(planner.Learn(entry));
  }
  ASSERT_TRUE(File().Save({&planner}).ok());
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path_));
  EXPECT_LT(bytes / 100 * static_cast<int64_t>(TuningTable::kMaxEntries), TuningFile::kMaxBytes);
}

}  // namespace
}  // namespace gemmd
