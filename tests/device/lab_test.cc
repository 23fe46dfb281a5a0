// The laboratory's ring on a device: right with both edges, wrong without one, and its moments in
// the order that the edges say.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/lab/hazard.h"
#include "kernels/lab/lab_run.h"
#include "kernels/lab/ladder.h"
#include "kernels/lab/production.h"
#include "kernels/lab/timeline.h"
#include "tests/device/device_fixture.h"

namespace gemmd::lab {
namespace {

using ::testing::HasSubstr;

constexpr ArrayShape kShape = {.strips = 8, .panels = 32};

class LabTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device_ = Open(kShape);
  }
  static std::unique_ptr<LabDevice> Open(const ArrayShape& shape) {
    StatusOr<LabDevice> device = LabDevice::Create(0, shape);
    EXPECT_TRUE(device.ok()) << device.status().ToString();
    if (!device.ok()) std::abort();  // nothing here could go on
    return std::make_unique<LabDevice>(*std::move(device));
  }
  std::unique_ptr<LabDevice> device_;
};

TEST_F(LabTest, BothEdgesGiveTheReferencesSumsWhateverTheStagesAndSteps) {
  LabDevice& device = *device_;
  uint32_t seed = 100;
  for (const Mechanism mechanism : device.mechanisms()) {
    for (int stages = 1; stages <= kMaxStages; ++stages) {
      for (const int panels : {1, 2, 3, stages, stages + 1, 2 * stages + 1, 32}) {
        for (const auto& [load, delay] : {std::pair(0U, 0U), {0U, 700U}, {1U, 0U}, {2000U, 700U}}) {
          ++seed;
          ASSERT_TRUE(device.Fill(seed).ok());
          const int work = static_cast<int>(seed % 3);
          const std::vector<uint32_t> all = PanelSums(kShape, seed, work, 4);
          Launch launch;
          launch.mechanism = mechanism;
          launch.blocks = 2 * kShape.strips;  // each strip twice
          launch.steps = launch.panels = panels;
          launch.stages = stages;
          launch.work = work;
          launch.load_clocks = load;
          launch.delay_clocks = delay;
          launch.trace_blocks = static_cast<int>(seed % 2);
          launch.wants_sums = true;
          const StatusOr<Outcome> outcome = device.Run(launch);
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          for (int block = 0; block < launch.blocks; ++block) {
            for (int i = 0; i < panels * kWarps; ++i) {
              ASSERT_EQ(
                  outcome->sums[static_cast<size_t>(block * panels * kWarps + i)],
                  all[static_cast<size_t>((block % kShape.strips) * kShape.panels * kWarps + i)])
                  << Name(mechanism) << " S=" << stages << " panels " << panels << " block "
                  << block << " sum " << i << " seed " << seed;
            }
          }
        }
      }
    }
  }
}

TEST_F(LabTest, StepsBeyondTheStripBeginItAgain) {
  LabDevice& device = *device_;
  ASSERT_TRUE(device.Fill(7).ok());
  const std::vector<uint32_t> all = PanelSums(kShape, 7, 0, 4);
  for (const Mechanism mechanism : device.mechanisms()) {
    Launch launch;
    launch.mechanism = mechanism;
    launch.steps = 11;
    launch.panels = 3;
    launch.stages = 4;
    launch.wants_sums = true;
    const StatusOr<Outcome> outcome = device.Run(launch);
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    for (int i = 0; i < 11 * kWarps; ++i) {
      EXPECT_EQ(outcome->sums[static_cast<size_t>(i)], all[static_cast<size_t>(i % (3 * kWarps))])
          << Name(mechanism) << " " << i;
    }
  }
}

TEST_F(LabTest, ARingWithoutAnEdgeIsCaughtAndTheWholeOneNever) {
  const std::unique_ptr<LabDevice> large = Open({.strips = 128, .panels = 128});
  LabDevice& device = *large;
  HazardOptions options;
  options.iterations = 3;
  options.threads = 4;
  options.mechanisms = device.mechanisms();
  for (const Hazard& hazard : Hazards()) {
    // A late reader meets an early refill. A reader that waits for nothing must not be late, and
    // comes right behind the copies' issue where there is one slot.
    const bool reuse = hazard.fault == Fault::kNoReuse || hazard.fault == Fault::kReuseAfterSome;
    options.faults = {hazard.fault};
    options.delays = {reuse ? 4000U : 0U};
    options.stages = reuse ? 2 : 1;
    const StatusOr<std::vector<HazardRow>> rows = RunHazards(device, options);
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    ASSERT_FALSE(rows->empty());
    for (const HazardRow& row : *rows) {
      EXPECT_EQ(row.correct_failures, 0) << hazard.name << " " << Name(row.mechanism);
      EXPECT_EQ(row.broken_failures, 3) << hazard.name << " " << Name(row.mechanism);
      ASSERT_FALSE(row.first_wrong.empty());
      const auto& examples = row.first_wrong;
      const auto fits = [&](const Example& example) {
        const WrongSum& wrong = example.wrong;
        if (wrong.origin != Origin::kPanel) return wrong.origin == Origin::kUnfilled && !reuse;
        return (wrong.from_step > wrong.step) == reuse;
      };
      EXPECT_TRUE(std::any_of(examples.begin(), examples.end(), fits))
          << hazard.name << " " << Name(row.mechanism) << ": "
          << OriginText(examples.front().wrong);
    }
  }
}

TEST_F(LabTest, MomentsOfAStepComeInTheOrderOfItsEdges) {
  LabDevice& device = *device_;
  constexpr int kSteps = 20;
  for (const Mechanism mechanism : device.mechanisms()) {
    for (const int stages : {1, 2, 4}) {
      Launch launch;
      launch.mechanism = mechanism;
      launch.blocks = 4;
      launch.steps = kSteps;
      launch.stages = stages;
      launch.panels = 8;
      launch.work = 50;
      launch.trace_blocks = 2;
      const StatusOr<Outcome> outcome = device.Run(launch);
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      for (int block = 0; block < 2; ++block) {
        const Timeline timeline =
            TimelineOf(outcome->trace.data() + block * TraceWords(kSteps), kSteps, stages, "");
        for (int step = 0; step < kSteps; ++step) {
          const std::string where = std::string(Name(mechanism)) + " S=" + std::to_string(stages) +
                                    " block " + std::to_string(block) + " step " +
                                    std::to_string(step);
          const StepMoments& at = timeline.steps[static_cast<size_t>(step)];
          EXPECT_LE(at.acquire, at.free) << where;
          EXPECT_LT(at.free, at.issued) << where;
          EXPECT_LT(at.free, at.landed) << where;
          for (const WarpStep& warp : at.warps) {
            EXPECT_LE(warp.wait, warp.ready) << where;
            EXPECT_LT(at.landed, warp.ready) << where;
            EXPECT_LT(warp.ready, warp.read) << where;
            if (step + stages < kSteps) {  // what it has read may be overwritten
              EXPECT_LT(warp.read, timeline.steps[static_cast<size_t>(step + stages)].free)
                  << where;
            }
          }
        }
      }
    }
  }
}

TEST_F(LabTest, ALoadTakesNoLessThanItsFloor) {
  LabDevice& device = *device_;
  for (const Mechanism mechanism : device.mechanisms()) {
    LadderOptions options;
    options.mechanism = mechanism;
    options.load_clocks = 5000;
    options.steps = 64;
    options.rounds = 3;
    const StatusOr<Ladder> ladder = MeasureLadder(device, options);
    ASSERT_TRUE(ladder.ok()) << ladder.status().ToString();
    EXPECT_GE(ladder->cost.load, 5000) << Name(mechanism);
    EXPECT_LT(ladder->cost.load, 7000) << Name(mechanism);
    EXPECT_LT(ladder->cost.compute, 2500) << Name(mechanism);
    ASSERT_EQ(ladder->rungs.size(), size_t{kMaxStages});
    // Loads of 5000 clocks and little else: two at a time take half.
    EXPECT_LT(ladder->rungs[1].measured_clocks, 0.75 * ladder->rungs[0].measured_clocks);
    EXPECT_LT(ladder->rungs[3].measured_clocks, 0.75 * ladder->rungs[1].measured_clocks);
  }
}

TEST_F(LabTest, WhatIsAskedForIsHadAtTheLeastScaleAndTakesWhatTheModelSays) {
  LabDevice& device = *device_;
  for (const Mechanism mechanism : device.mechanisms()) {
    LadderOptions options;
    options.mechanism = mechanism;
    const TileCost asked = {.load = 500, .compute = 220};
    const StatusOr<Setting> setting = SettingFor(device, options, asked);
    ASSERT_TRUE(setting.ok()) << setting.status().ToString();
    options.work = setting->work;
    options.load_clocks = setting->load_clocks;
    const StatusOr<Ladder> ladder = MeasureLadder(device, options);
    ASSERT_TRUE(ladder.ok()) << ladder.status().ToString();
    const auto near = [](double found, double expected) {
      return found > 0.9 * expected && found < 1.1 * expected;
    };
    EXPECT_PRED2(near, ladder->cost.load, setting->scale * asked.load) << Name(mechanism);
    EXPECT_PRED2(near, ladder->cost.compute, setting->scale * asked.compute) << Name(mechanism);
    for (const Rung& rung : ladder->rungs) {
      EXPECT_PRED2(near, rung.measured_clocks, rung.predicted_clocks)
          << Name(mechanism) << " S=" << rung.stages;
    }
    EXPECT_EQ(SettingFor(device, options, {.load = 500, .compute = 0.5}).status().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST_F(LabTest, ARingOfFourTakesAsMuchRoomAsTwoBlocksOfTwo) {
  LabDevice& device = *device_;
  Launch launch;
  launch.stage_bytes = ResidencyStageBytes(device.traits());
  launch.stages = 2;
  const StatusOr<int> two = device.DriverResidentBlocks(launch);
  launch.stages = 4;
  const StatusOr<int> four = device.DriverResidentBlocks(launch);
  ASSERT_TRUE(two.ok() && four.ok());
  EXPECT_EQ(*two, 2);
  EXPECT_EQ(*four, 1);
}

TEST_F(LabTest, TheModelHasAsManyBlocksOfTheWholeRingAsTheDriver) {
  for (const Mechanism mechanism : device_->mechanisms()) {
    for (int stages = 1; stages <= kMaxStages; ++stages) {
      Launch launch;
      launch.mechanism = mechanism;
      launch.stages = stages;
      launch.stage_bytes = 16 << 10;
      const StatusOr<int> blocks = device_->DriverResidentBlocks(launch);
      ASSERT_TRUE(blocks.ok()) << blocks.status().ToString();
      EXPECT_EQ(ResidentBlocks(traits_, kFixedBytes + stages * launch.stage_bytes, kThreads,
                               kMostRegisters),
                *blocks)
          << Name(mechanism) << " S=" << stages;
    }
  }
}

TEST_F(LabTest, WhatIsOutOfRangeIsRefusedByName) {
  LabDevice& device = *device_;
  const auto field_of = [&](auto change) {
    Launch launch;
    change(launch);
    return device.Run(launch).status().field();
  };
  EXPECT_EQ(field_of([](Launch& l) { l.blocks = 0; }), "blocks");
  EXPECT_EQ(field_of([](Launch& l) { l.steps = 0; }), "steps");
  EXPECT_EQ(field_of([](Launch& l) { l.panels = kShape.panels + 1; }), "panels");
  EXPECT_EQ(field_of([](Launch& l) { l.stages = kMaxStages + 1; }), "stages");
  EXPECT_EQ(field_of([](Launch& l) { l.stage_bytes = kPanelBytes - 1; }), "stage_bytes");
  EXPECT_EQ(field_of([](Launch& l) { l.stage_bytes = kPanelBytes + 1; }), "stage_bytes");
  EXPECT_EQ(field_of([](Launch& l) { l.stage_bytes = 1 << 20; }), "stage_bytes");
  EXPECT_EQ(field_of([](Launch& l) {
              l.steps = 1 << 18;
              l.load_clocks = 1 << 20;
            }),
            "clocks of all steps");
  EXPECT_EQ(field_of([](Launch& l) {  // rounds of work take tens of clocks
              l.steps = 512;
              l.work = 200000;
            }),
            "clocks of all steps");
  EXPECT_EQ(field_of([](Launch& l) {
              l.fault = Fault::kNoReuse;
              l.trace_blocks = 1;
            }),
            "trace_blocks");
}

void ExpectEachStepOnceAWarp(const Picture& picture, int steps, int stages) {
  EXPECT_GE(picture.lanes.size(), static_cast<size_t>(stages) + kWarps) << picture.name;
  for (const Lane& lane : picture.lanes) {
    const std::string where = picture.name + " " + lane.name;
    std::vector<int> ready, copies;
    uint32_t until = 0;
    for (const Span& span : lane.spans) {
      EXPECT_LE(span.from, span.to) << where;
      EXPECT_GE(span.from, until) << where;  // one after the other
      until = span.to;
      if (span.kind == Span::Kind::kWaitReady) ready.push_back(span.step);
      if (span.kind == Span::Kind::kCopy) copies.push_back(span.step);
    }
    if (lane.name.find("warp") == 0) {
      ASSERT_EQ(ready.size(), static_cast<size_t>(steps)) << where;
      for (int step = 0; step < steps; ++step) EXPECT_EQ(ready[static_cast<size_t>(step)], step);
    }
    if (lane.name.find("slot") == 0) {
      EXPECT_EQ(copies.size(), static_cast<size_t>(steps / stages)) << where;
    }
  }
}

TEST_F(LabTest, AProductionKernelsWaitsAreOfEachStepOnceAWarp) {
  for (const int row : TracedRows(traits_)) {
    for (const int stages : {1, 2, 4}) {
      // One tile a block, of 12 steps.
      StatusOr<std::vector<Picture>> pictures =
          TraceProduct(traits_, {row, stages, 256, 256, 12 * 64}, {0, 3});
      ASSERT_TRUE(pictures.ok()) << pictures.status().ToString();
      ASSERT_EQ(pictures->size(), 2u);
      EXPECT_THAT(pictures->at(0).name, HasSubstr(", block 0"));
      EXPECT_THAT(pictures->at(1).name, HasSubstr(", block 3"));
      for (const Picture& picture : *pictures) ExpectEachStepOnceAWarp(picture, 12, stages);
      for (Picture& picture : *pictures) picture.name = "";
      EXPECT_NE(ChromeTrace({pictures->at(0)}), ChromeTrace({pictures->at(1)})) << "one block's";
    }
  }
}

TEST_F(LabTest, ABlockThatALaunchHasNotIsRefusedWithHowManyItHas) {
  for (const int row : TracedRows(traits_)) {
    const Status status = TraceProduct(traits_, {row, 2, 256, 256, 64}, {0, 4}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.ToString(), HasSubstr("block=4 is not below 4"));
  }
}

}  // namespace
}  // namespace gemmd::lab
