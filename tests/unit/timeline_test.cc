#include "kernels/lab/timeline.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::lab {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Two steps of a single buffer, from `start` on. In step i, from i * 1000 on, the warps begin to
// wait at 5 and the producer at 8; the slot is free at 15, its copies are issued at 20 and land at
// 500, and it is read from 510 to 600, by warp 3 to 700.
std::vector<uint32_t> Words(uint32_t start) {
  std::vector<uint32_t> words(static_cast<size_t>(TraceWords(2)));
  for (int step = 0; step < 2; ++step) {
    const auto set = [&](int warp, Moment moment, uint32_t at) {
      words[static_cast<size_t>((step * kTraceWarps + warp) * kMoments) +
            static_cast<size_t>(moment)] = start + static_cast<uint32_t>(step) * 1000 + at;
    };
    set(kTracedProducer, Moment::kAcquire, 8);
    set(kTracedProducer, Moment::kFree, 15);
    set(kTracedProducer, Moment::kIssued, 20);
    set(kTracedRelay, Moment::kLanded, 500);
    for (int warp = 0; warp < kWarps; ++warp) {
      set(warp, Moment::kWait, 5);
      set(warp, Moment::kReady, 510);
      set(warp, Moment::kRead, warp == 3 ? 700 : 600);
    }
  }
  return words;
}

TEST(TimelineTest, CountsFromTheFirstMomentAcrossAWrapOfTheClock) {
  for (const uint32_t start : {0U, 12345U, 0xfffffff0U}) {
    const std::vector<uint32_t> words = Words(start);
    const Timeline timeline = TimelineOf(words.data(), 2, 1, "S = 1");
    ASSERT_EQ(timeline.steps.size(), 2u);
    const StepMoments& second = timeline.steps[1];
    EXPECT_EQ(second.slot, 0);
    EXPECT_EQ(second.acquire, 1003u) << start;
    EXPECT_EQ(second.free, 1010u) << start;
    EXPECT_EQ(second.issued, 1015u) << start;
    EXPECT_EQ(second.landed, 1495u) << start;
    EXPECT_EQ(second.warps[3].wait, 1000u) << start;
    EXPECT_EQ(second.warps[3].ready, 1505u) << start;
    EXPECT_EQ(second.warps[3].read, 1695u) << start;
  }
}

TEST(TimelineTest, SlotsAreTakenInTurn) {
  const std::vector<uint32_t> words = Words(0);
  const Timeline timeline = TimelineOf(words.data(), 2, 2, "S = 2");
  EXPECT_EQ(timeline.steps[0].slot, 0);
  EXPECT_EQ(timeline.steps[1].slot, 1);
}

TEST(TimelineTest, ATraceHasASpanForEachCopyWaitAndRead) {
  const std::vector<uint32_t> words = Words(99);
  const std::string trace = ChromeTrace({PictureOf(TimelineOf(words.data(), 2, 1, "S = 1"))});
  EXPECT_THAT(trace, HasSubstr("\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": 0, "
                               "\"args\": {\"name\": \"S = 1\"}"));
  EXPECT_THAT(trace, HasSubstr("{\"name\": \"copy under way\", \"ph\": \"X\", \"pid\": 0, \"tid\": "
                               "0, \"ts\": 1.01, \"dur\": 0.485, \"args\": {\"step\": 1}}"));
  EXPECT_THAT(trace, HasSubstr("{\"name\": \"waits for the panel\", \"ph\": \"X\", \"pid\": 0, "
                               "\"tid\": 5, \"ts\": 0, \"dur\": 0.505, \"args\": {\"step\": 0}}"));
  EXPECT_THAT(trace, HasSubstr("{\"name\": \"waits for a free slot\", \"ph\": \"X\", \"pid\": 0, "
                               "\"tid\": 1, \"ts\": 1.003, \"dur\": 0.007,"));
  EXPECT_THAT(trace, HasSubstr("{\"name\": \"issues the copies\", \"ph\": \"X\", \"pid\": 0, "
                               "\"tid\": 1, \"ts\": 1.01, \"dur\": 0.005,"));
}

// The spans of the lane of that name, as "kind step from to".
std::vector<std::string> SpansOf(const Picture& picture, const std::string& name) {
  const char* const kinds[] = {"copy", "ready", "read", "reuse", "issue"};
  std::vector<std::string> texts;
  for (const Lane& lane : picture.lanes) {
    if (lane.name != name) continue;
    for (const Span& span : lane.spans) {
      texts.push_back(std::string(kinds[static_cast<int>(span.kind)]) + " " +
                      std::to_string(span.step) + " " + std::to_string(span.from) + " " +
                      std::to_string(span.to));
    }
  }
  return texts;
}

void Add(WarpWaits& warp, bool reuse, uint32_t begin, uint32_t end) {
  warp.waits[warp.count++] = {reuse, begin, end};
}

TEST(TimelineTest, AProducersWaitsEndWhereItsCopiesBegin) {
  std::vector<WarpWaits> waits(kTracedWarps);
  Add(waits[0], true, 0xfffffff0, 0xfffffff2);  // the clock wraps
  Add(waits[0], true, 0xfffffff4, 10);
  Add(waits[4], false, 2, 20);
  Add(waits[4], false, 50, 52);
  Add(waits[5], false, 4, 22);
  const Picture picture =
      PictureOfWaits(waits.data(), {.name = "", .stages = 2, .k_tiles = 2, .producer = true});
  EXPECT_EQ(picture.lanes.size(), 5u);  // two slots, the producer, two warps
  EXPECT_THAT(SpansOf(picture, "producer"), ElementsAre("reuse 0 0 2", "reuse 1 4 26"));
  EXPECT_THAT(SpansOf(picture, "warp 4"),
              ElementsAre("ready 0 18 36", "read 0 36 66", "ready 1 66 68"));
  EXPECT_THAT(SpansOf(picture, "slot 0"), ElementsAre("copy 0 2 36"));
  EXPECT_THAT(SpansOf(picture, "slot 1"), ElementsAre("copy 1 26 68"));
}

TEST(TimelineTest, ConsumersInTurnHaveTheStepsOfTheirOwnTiles) {
  std::vector<WarpWaits> waits(kTracedWarps);
  for (const uint32_t at : {10U, 20U, 30U}) {
    Add(waits[4], false, at, at + 1);
    Add(waits[8], false, at + 5, at + 6);
  }
  const Picture picture = PictureOfWaits(
      waits.data(), {.name = "", .stages = 1, .k_tiles = 2, .producer = true, .in_turn = true});
  EXPECT_THAT(SpansOf(picture, "warp 4"), Contains("ready 4 20 21"));
  EXPECT_THAT(SpansOf(picture, "warp 8"), Contains("ready 2 5 6"));
  EXPECT_THAT(SpansOf(picture, "warp 8"), Contains("ready 6 25 26"));
}

TEST(TimelineTest, WarpsThatFillTheRingThemselvesDoItBehindTheirWait) {
  std::vector<WarpWaits> waits(kTracedWarps);
  for (const uint32_t at : {10U, 20U, 30U}) Add(waits[1], false, at, at + 4);
  const Picture picture = PictureOfWaits(waits.data(), {.name = "", .stages = 3, .k_tiles = 3});
  EXPECT_THAT(SpansOf(picture, "slot 0"), ElementsAre("copy 0 0 4"));
  EXPECT_THAT(SpansOf(picture, "slot 1"), ElementsAre("copy 1 0 14"));
  EXPECT_THAT(SpansOf(picture, "slot 2"), ElementsAre("copy 2 4 24"));  // issued in step 0
}

TEST(TimelineTest, APictureHasItsStepsAndNoOthers) {
  const std::vector<uint32_t> words = Words(99);
  const std::string svg = TimelineSvg({PictureOf(TimelineOf(words.data(), 2, 1, "S < 2"))}, 1);
  EXPECT_THAT(svg, HasSubstr("S &lt; 2"));
  EXPECT_THAT(svg, HasSubstr("<title>copy under way, step 0: 10 to 495</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>reads and works, step 0: 505 to 695</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("step 1:")));
  EXPECT_EQ(svg.rfind("</svg>\n"), svg.size() - 7);
}

}  // namespace
}  // namespace gemmd::lab
