#include "kernels/lab/timeline.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two steps of a single buffer. Step i is issued at i * 1000 from `start` on, lands 500 later, and
// is read from 510 to 600, by warp 3 to 700.
std::vector<uint32_t> Words(uint32_t start) {
  std::vector<uint32_t> words(static_cast<size_t>(TraceWords(2)));
  for (int step = 0; step < 2; ++step) {
    const auto set = [&](int warp, Moment moment, uint32_t at) {
      words[static_cast<size_t>((step * kTraceWarps + warp) * kMoments) +
            static_cast<size_t>(moment)] = start + static_cast<uint32_t>(step) * 1000 + at;
    };
    set(0, Moment::kIssued, 0);
    set(kWarps, Moment::kLanded, 500);
    for (int warp = 0; warp < kWarps; ++warp) {
      set(warp, Moment::kWait, 5);
      set(warp, Moment::kReady, 510);
      set(warp, Moment::kRead, warp == 3 ? 700 : 600);
      set(warp, Moment::kReuse, 705);
    }
  }
  return words;
}

TEST(TimelineTest, CountsFromTheFirstIssueAcrossAWrapOfTheClock) {
  for (const uint32_t start : {0U, 12345U, 0xfffffe00U}) {
    const std::vector<uint32_t> words = Words(start);
    const Timeline timeline = TimelineOf(words.data(), 2, 1, "S = 1", 7);
    ASSERT_EQ(timeline.steps.size(), 2u);
    const StepMoments& second = timeline.steps[1];
    EXPECT_EQ(second.slot, 0);
    EXPECT_EQ(second.issued, 1000u) << start;
    EXPECT_EQ(second.landed, 1500u) << start;
    EXPECT_EQ(second.warps[3].wait, 1005u) << start;
    EXPECT_EQ(second.warps[3].ready, 1510u) << start;
    EXPECT_EQ(second.warps[3].read, 1700u) << start;
    EXPECT_EQ(second.warps[3].reuse, 1705u) << start;
  }
}

TEST(TimelineTest, SlotsAreTakenInTurn) {
  const std::vector<uint32_t> words = Words(0);
  const Timeline timeline = TimelineOf(words.data(), 2, 2, "S = 2", 0);
  EXPECT_EQ(timeline.steps[0].slot, 0);
  EXPECT_EQ(timeline.steps[1].slot, 1);
}

TEST(TimelineTest, ATraceHasASpanForEachCopyWaitAndRead) {
  const std::vector<uint32_t> words = Words(99);
  const std::string trace = ChromeTrace({TimelineOf(words.data(), 2, 1, "S = 1", 7)});
  EXPECT_THAT(trace, HasSubstr("\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": 0, "
                               "\"args\": {\"name\": \"S = 1, block 7\"}"));
  EXPECT_THAT(trace, HasSubstr("{\"name\": \"copy under way\", \"ph\": \"X\", \"pid\": 0, \"tid\": "
                               "0, \"ts\": 1, \"dur\": 0.5, \"args\": {\"step\": 1}}"));
  EXPECT_THAT(trace,
              HasSubstr("{\"name\": \"waits for the panel\", \"ph\": \"X\", \"pid\": 0, "
                        "\"tid\": 4, \"ts\": 0.005, \"dur\": 0.505, \"args\": {\"step\": 0}}"));
  EXPECT_THAT(trace,
              HasSubstr("{\"name\": \"waits for the other readers\", \"ph\": \"X\", \"pid\": "
                        "0, \"tid\": 1, \"ts\": 0.6, \"dur\": 0.105,"));
}

TEST(TimelineTest, APictureHasItsStepsAndNoOthers) {
  const std::vector<uint32_t> words = Words(99);
  const std::string svg = TimelineSvg({TimelineOf(words.data(), 2, 1, "S < 2", 7)}, 1);
  EXPECT_THAT(svg, HasSubstr("S &lt; 2"));
  EXPECT_THAT(svg, HasSubstr("<title>copy under way, step 0: 0 to 500</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>reads and works, step 0: 510 to 700</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("step 1:")));
  EXPECT_EQ(svg.rfind("</svg>\n"), svg.size() - 7);
}

}  // namespace
}  // namespace gemmd::lab
