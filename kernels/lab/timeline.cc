#include "kernels/lab/timeline.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/core/json.h"
#include "kernels/core/svg.h"

namespace gemmd::lab {
namespace {

struct Look {
  const char* name;
  const char* colour;  // Okabe and Ito's: told apart by the colour-blind too
};
constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
constexpr int kFirstConsumerWarp = 4, kConsumerWarps = 4;  // of a TMA kernel

// By Span::Kind.
constexpr std::array<Look, 5> kLooks = {{{"copy under way", "#56b4e9"},
                                         {"waits for the panel", "#d55e00"},
                                         {"reads and works", "#009e73"},
                                         {"waits for a free slot", "#e69f00"},
                                         {"issues the copies", "#0072b2"}}};

const Look& LookOf(Span::Kind kind) { return kLooks[static_cast<size_t>(kind)]; }

std::vector<Lane> EmptySlots(int stages) {
  std::vector<Lane> slots;
  for (int slot = 0; slot < stages; ++slot) slots.push_back({"slot " + std::to_string(slot), {}});
  return slots;
}

// The K step of a warp's `index`-th wait for a panel.
int StepOf(const TracedRing& ring, int warp, int index) {
  if (!ring.in_turn) return index;
  const int consumer = (warp - kFirstConsumerWarp) / kConsumerWarps;
  return (index / ring.k_tiles * 2 + consumer) * ring.k_tiles + index % ring.k_tiles;
}

// Of two moments by a clock that may have wrapped between them.
uint32_t Earlier(uint32_t a, uint32_t b) { return static_cast<int32_t>(b - a) < 0 ? b : a; }

uint32_t FirstWait(const WarpWaits* waits) {
  std::optional<uint32_t> first;
  for (int warp = 0; warp < kTracedWarps; ++warp) {
    if (waits[warp].count == 0) continue;
    const uint32_t begin = waits[warp].waits[0].begin;
    first = first ? Earlier(*first, begin) : begin;
  }
  return first.value_or(0);
}

// When the copies of each step were issued and, by `ready`, their panel was had. By step.
struct StepTimes {
  std::vector<uint32_t> issued, ready;

  static void Keep(std::vector<uint32_t>& times, int step, uint32_t time) {
    const auto at = static_cast<size_t>(step);
    if (times.size() <= at) times.resize(at + 1, kNever);
    times[at] = std::min(times[at], time);
  }
};

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

uint32_t EndOf(const Picture& picture, int steps) {
  uint32_t end = 1;
  for (const Lane& lane : picture.lanes) {
    for (const Span& span : lane.spans) {
      if (span.step < steps) end = std::max(end, span.to);
    }
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

std::string PictureName(std::string_view ring, int stages, int block) {
  return std::string(ring) + ", S = " + std::to_string(stages) + ", block " + std::to_string(block);
}

Timeline TimelineOf(const uint32_t* words, int steps, int stages, std::string name) {
  const auto at = [&](int step, int warp, Moment moment) {
    return words[(step * kTraceWarps + warp) * kMoments + static_cast<int>(moment)];
  };
  uint32_t start = steps > 0 ? at(0, kTracedProducer, Moment::kAcquire) : 0;
  for (int warp = 0; warp < kWarps && steps > 0; ++warp) {
    start = Earlier(start, at(0, warp, Moment::kWait));
  }
  Timeline timeline{.name = std::move(name), .stages = stages, .steps = {}};
  for (int step = 0; step < steps; ++step) {
    StepMoments moments{.slot = step % stages,
                        .acquire = at(step, kTracedProducer, Moment::kAcquire) - start,
                        .free = at(step, kTracedProducer, Moment::kFree) - start,
                        .issued = at(step, kTracedProducer, Moment::kIssued) - start,
                        .landed = at(step, kTracedRelay, Moment::kLanded) - start};
    for (int warp = 0; warp < kWarps; ++warp) {
      moments.warps[static_cast<size_t>(warp)] = {.wait = at(step, warp, Moment::kWait) - start,
                                                  .ready = at(step, warp, Moment::kReady) - start,
                                                  .read = at(step, warp, Moment::kRead) - start};
    }
    timeline.steps.push_back(moments);
  }
  return timeline;
}

Picture PictureOf(const Timeline& timeline) {
  std::vector<Lane> lanes = EmptySlots(timeline.stages);
  lanes.push_back({"producer", {}});
  for (int warp = 0; warp < kWarps; ++warp) lanes.push_back({"warp " + std::to_string(warp), {}});
  Lane* const producer = &lanes[static_cast<size_t>(timeline.stages)];
  Lane* const warps = producer + 1;
  for (size_t i = 0; i < timeline.steps.size(); ++i) {
    const StepMoments& at = timeline.steps[i];
    const int step = static_cast<int>(i);
    lanes[static_cast<size_t>(at.slot)].spans.push_back(
        {Span::Kind::kCopy, at.free, at.landed, step});
    producer->spans.push_back({Span::Kind::kWaitReuse, at.acquire, at.free, step});
    producer->spans.push_back({Span::Kind::kIssue, at.free, at.issued, step});
    for (size_t warp = 0; warp < kWarps; ++warp) {
      const WarpStep& moments = at.warps[warp];
      std::vector<Span>& spans = warps[warp].spans;
      spans.push_back({Span::Kind::kWaitReady, moments.wait, moments.ready, step});
      spans.push_back({Span::Kind::kRead, moments.ready, moments.read, step});
    }
  }
  return {timeline.name, std::move(lanes)};
}

Picture PictureOfWaits(const WarpWaits* waits, const TracedRing& ring) {
  const uint32_t start = FirstWait(waits);
  StepTimes times;
  std::vector<Lane> warps;
  for (int warp = 0; warp < kTracedWarps; ++warp) {
    const WarpWaits& of = waits[warp];
    if (of.count == 0) continue;
    const bool produces = ring.producer && warp == 0;
    Lane lane{produces ? "producer" : "warp " + std::to_string(warp), {}};
    int waited_full = 0, waited_empty = 0;
    const auto count = static_cast<int>(std::min<uint32_t>(of.count, kTracedWaits));
    for (int i = 0; i < count; ++i) {
      const Wait& wait = of.waits[i];
      const uint32_t begin = wait.begin - start, end = wait.end - start;
      if (wait.reuse != 0) {
        const int step = waited_empty++;
        lane.spans.push_back({Span::Kind::kWaitReuse, begin, end, step});
        StepTimes::Keep(times.issued, step, end);
        continue;
      }
      const int step = StepOf(ring, warp, waited_full++);
      lane.spans.push_back({Span::Kind::kWaitReady, begin, end, step});
      StepTimes::Keep(times.ready, step, end);
      // A ring that all warps fill is filled behind the wait, S - 1 steps ahead.
      if (!ring.producer && ring.stages > 1) {
        StepTimes::Keep(times.issued, step + ring.stages - 1, end);
      }
      if (i + 1 < count) {
        lane.spans.push_back({Span::Kind::kRead, end, of.waits[i + 1].begin - start, step});
      }
    }
    warps.push_back(std::move(lane));
  }
  std::vector<Lane> lanes = EmptySlots(ring.stages);
  for (size_t step = 0; step < times.ready.size(); ++step) {
    const bool known = step < times.issued.size() && times.issued[step] != kNever;
    // Where all warps fill the ring, the first are issued before the first wait.
    const bool before = !ring.producer && static_cast<int>(step) < ring.stages;
    const uint32_t from = known ? times.issued[step] : 0;
    if ((!known && !before) || times.ready[step] == kNever || times.ready[step] < from) continue;
    lanes[step % static_cast<size_t>(ring.stages)].spans.push_back(
        {Span::Kind::kCopy, from, times.ready[step], static_cast<int>(step)});
  }
  lanes.insert(lanes.end(), warps.begin(), warps.end());
  return {ring.name, std::move(lanes)};
}

std::string ChromeTrace(const std::vector<Picture>& pictures) {
  Json events = Json::Array();
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto process = static_cast<int>(i);
    events.Add(NameEvent("process_name", process, 0, pictures[i].name));
    const std::vector<Lane>& lanes = pictures[i].lanes;
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

std::string TimelineSvg(const std::vector<Picture>& pictures, int steps) {
  uint32_t end = 1;
  for (const Picture& picture : pictures) end = std::max(end, EndOf(picture, steps));
  const double scale = kWidth / end;
  Svg svg;
  double x = kLeft;
  for (const Look& look : kLooks) {
    svg.Rect(x, 14, 14, 14, look.colour, look.name);
    svg.Text(x + 20, 26, look.name);
    x += 180;
  }
  double y = kTop;
  for (const Picture& picture : pictures) {
    svg.Text(kLeft, y + 14, picture.name);
    y += kTitleHeight;
    const double bottom = y + static_cast<double>(picture.lanes.size()) * (kLaneHeight + kLaneGap);
    for (uint64_t tick = 0, each = TickOf(end); tick <= end; tick += each) {
      const double at = kLeft + static_cast<double>(tick) * scale;
      svg.Line(at, y, bottom);
      svg.Text(at, bottom + 14, std::to_string(tick), "middle");
    }
    for (const Lane& lane : picture.lanes) {
      svg.Text(kLeft - 8, y + 13, lane.name, "end");
      for (const Span& span : lane.spans) {
        if (span.step >= steps) continue;
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
