#include "kernels/lab/timeline.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/core/json.h"
#include "kernels/core/svg.h"

namespace gemmd::lab {
namespace {

// One span of a lane of a picture.
struct Span {
  enum class Kind : uint8_t { kCopy, kWaitReady, kRead, kWaitReuse };
  Kind kind;
  uint32_t from, to;
  int step;
};

struct Lane {
  std::string name;
  std::vector<Span> spans;
};

struct Look {
  const char* name;
  const char* colour;  // Okabe and Ito's: told apart by the colour-blind too
};
// By Span::Kind.
constexpr std::array<Look, 4> kLooks = {{{"copy under way", "#56b4e9"},
                                         {"waits for the panel", "#d55e00"},
                                         {"reads and works", "#009e73"},
                                         {"waits for the other readers", "#e69f00"}}};

const Look& LookOf(Span::Kind kind) { return kLooks[static_cast<size_t>(kind)]; }

// Slots first, then warps; of the first `steps` steps.
std::vector<Lane> LanesOf(const Timeline& timeline, size_t steps) {
  std::vector<Lane> slots, warps;
  for (int slot = 0; slot < timeline.stages; ++slot) {
    slots.push_back({"slot " + std::to_string(slot), {}});
  }
  for (int warp = 0; warp < kWarps; ++warp) {
    warps.push_back({"warp " + std::to_string(warp), {}});
  }
  for (size_t i = 0; i < std::min(steps, timeline.steps.size()); ++i) {
    const StepMoments& at = timeline.steps[i];
    const int step = static_cast<int>(i);
    slots[static_cast<size_t>(at.slot)].spans.push_back(
        {Span::Kind::kCopy, at.issued, at.landed, step});
    for (size_t warp = 0; warp < kWarps; ++warp) {
      const WarpStep& moments = at.warps[warp];
      std::vector<Span>& spans = warps[warp].spans;
      spans.push_back({Span::Kind::kWaitReady, moments.wait, moments.ready, step});
      spans.push_back({Span::Kind::kRead, moments.ready, moments.read, step});
      spans.push_back({Span::Kind::kWaitReuse, moments.read, moments.reuse, step});
    }
  }
  slots.insert(slots.end(), warps.begin(), warps.end());
  return slots;
}

Json NameEvent(const char* what, int process, int thread, const std::string& name) {
  return Json::Object()
      .Set("name", what)
      .Set("ph", "M")
      .Set("pid", process)
      .Set("tid", thread)
      .Set("args", Json::Object().Set("name", name));
}

// Pixels.
constexpr double kLeft = 90, kRight = 20, kTop = 56, kWidth = 900;
constexpr double kLeastForNumber = 16;  // of a span that shows its step
constexpr double kLaneHeight = 18, kLaneGap = 4, kTitleHeight = 26, kAxisHeight = 30;

uint32_t EndOf(const std::vector<Lane>& lanes) {
  uint32_t end = 1;
  for (const Lane& lane : lanes) {
    for (const Span& span : lane.spans) end = std::max(end, span.to);
  }
  return end;
}

// 1, 2 or 5 times a power of ten: five to twelve of them fill `end`.
uint32_t TickOf(uint32_t end) {
  uint32_t tick = 1;
  for (int i = 0; end / tick > 12; ++i) tick = tick / (i % 3 == 1 ? 2 : 1) * (i % 3 == 1 ? 5 : 2);
  return tick;
}

class Svg {
 public:
  void Rect(double x, double y, double width, double height, const char* colour,
            const std::string& title) {
    body_ += "<rect x=\"" + SvgNumber(x) + "\" y=\"" + SvgNumber(y) + "\" width=\"" +
             SvgNumber(width) + "\" height=\"" + SvgNumber(height) + "\" fill=\"" + colour +
             "\"><title>" + SvgText(title) + "</title></rect>\n";
  }
  void Text(double x, double y, const std::string& text, const char* anchor = "start") {
    body_ += "<text x=\"" + SvgNumber(x) + "\" y=\"" + SvgNumber(y) + "\" text-anchor=\"" + anchor +
             "\">" + SvgText(text) + "</text>\n";
  }
  void Line(double x, double y0, double y1) {
    body_ += "<line x1=\"" + SvgNumber(x) + "\" y1=\"" + SvgNumber(y0) + "\" x2=\"" + SvgNumber(x) +
             "\" y2=\"" + SvgNumber(y1) + "\" stroke=\"#bbbbbb\"/>\n";
  }
  std::string Document(double width, double height) const {
    const std::string size = SvgNumber(width) + "\" height=\"" + SvgNumber(height);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + size +
           "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"" + size +
           "\" fill=\"#ffffff\"/>\n" + body_ + "</svg>\n";
  }

 private:
  std::string body_;
};

}  // namespace

Timeline TimelineOf(const uint32_t* words, int steps, int stages, std::string name, int block) {
  const auto at = [&](int step, int warp, Moment moment) {
    return words[(step * kTraceWarps + warp) * kMoments + static_cast<int>(moment)];
  };
  const uint32_t start = steps > 0 ? at(0, 0, Moment::kIssued) : 0;
  Timeline timeline{.name = std::move(name), .block = block, .stages = stages, .steps = {}};
  for (int step = 0; step < steps; ++step) {
    StepMoments moments{.slot = step % stages,
                        .issued = at(step, 0, Moment::kIssued) - start,
                        .landed = at(step, kWarps, Moment::kLanded) - start};
    for (int warp = 0; warp < kWarps; ++warp) {
      moments.warps[static_cast<size_t>(warp)] = {.wait = at(step, warp, Moment::kWait) - start,
                                                  .ready = at(step, warp, Moment::kReady) - start,
                                                  .read = at(step, warp, Moment::kRead) - start,
                                                  .reuse = at(step, warp, Moment::kReuse) - start};
    }
    timeline.steps.push_back(moments);
  }
  return timeline;
}

std::string ChromeTrace(const std::vector<Timeline>& timelines) {
  Json events = Json::Array();
  for (size_t i = 0; i < timelines.size(); ++i) {
    const Timeline& timeline = timelines[i];
    const auto process = static_cast<int>(i);
    events.Add(NameEvent("process_name", process, 0,
                         timeline.name + ", block " + std::to_string(timeline.block)));
    const std::vector<Lane> lanes = LanesOf(timeline, timeline.steps.size());
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const auto thread = static_cast<int>(lane);
      events.Add(NameEvent("thread_name", process, thread, lanes[lane].name));
      for (const Span& span : lanes[lane].spans) {
        // Times are microseconds: a clock is shown as a nanosecond.
        events.Add(Json::Object()
                       .Set("name", LookOf(span.kind).name)
                       .Set("ph", "X")
                       .Set("pid", process)
                       .Set("tid", thread)
                       .Set("ts", span.from / 1000.0)
                       .Set("dur", (span.to - span.from) / 1000.0)
                       .Set("args", Json::Object().Set("step", span.step)));
      }
    }
  }
  return Json::Object()
             .Set("displayTimeUnit", "ns")
             .Set("otherData", Json::Object().Set("time", "1 ns shown is 1 clock of the SM"))
             .Set("traceEvents", events)
             .text() +
         "\n";
}

std::string TimelineSvg(const std::vector<Timeline>& timelines, int steps) {
  std::vector<std::vector<Lane>> pictures;
  uint32_t end = 1;
  for (const Timeline& timeline : timelines) {
    pictures.push_back(LanesOf(timeline, static_cast<size_t>(steps)));
    end = std::max(end, EndOf(pictures.back()));
  }
  const double scale = kWidth / end;
  Svg svg;
  double x = kLeft;
  for (const Look& look : kLooks) {
    svg.Rect(x, 14, 14, 14, look.colour, look.name);
    svg.Text(x + 20, 26, look.name);
    x += 220;
  }
  double y = kTop;
  for (size_t i = 0; i < pictures.size(); ++i) {
    svg.Text(kLeft, y + 14, timelines[i].name);
    y += kTitleHeight;
    const double top = y,
                 bottom = y + static_cast<double>(pictures[i].size()) * (kLaneHeight + kLaneGap);
    for (uint32_t tick = 0, each = TickOf(end); tick <= end; tick += each) {
      svg.Line(kLeft + tick * scale, top, bottom);
      svg.Text(kLeft + tick * scale, bottom + 14, std::to_string(tick), "middle");
    }
    for (const Lane& lane : pictures[i]) {
      svg.Text(kLeft - 8, y + 13, lane.name, "end");
      for (const Span& span : lane.spans) {
        const double from = kLeft + span.from * scale, width = (span.to - span.from) * scale;
        svg.Rect(from, y, width, kLaneHeight, LookOf(span.kind).colour,
                 std::string(LookOf(span.kind).name) + ", step " + std::to_string(span.step) +
                     ": " + std::to_string(span.from) + " to " + std::to_string(span.to));
        if (width >= kLeastForNumber) {
          svg.Text(from + width / 2, y + 13, std::to_string(span.step), "middle");
        }
      }
      y += kLaneHeight + kLaneGap;
    }
    y += kAxisHeight;
  }
  return svg.Document(kLeft + kWidth + kRight, y);
}

}  // namespace gemmd::lab
