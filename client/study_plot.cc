#include "client/study_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/core/svg.h"
#include "kernels/core/tables.h"

namespace gemmd {
namespace {

// Okabe and Ito's palette, without its yellow, which white paper swallows.
constexpr std::array<const char*, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#000000"};
constexpr int kMarkers = 4;

// Pixels.
constexpr double kLeft = 90, kTop = 60, kPlotWidth = 640, kPlotHeight = 420;
constexpr double kRight = kLeft + kPlotWidth;
constexpr double kLegendLine = 24, kLegendWidth = 360;

// 1, 2 or 5 times a power of ten: the largest that is not above `value`, or the smallest that is
// not below it.
double Round(double value, bool up) {
  const double decade = std::pow(10, std::floor(std::log10(value)));
  double below = decade;
  for (const double factor : {1., 2., 5., 10.}) {
    // Values that are ticks themselves come out of a logarithm a little off.
    if (up && factor * decade >= value * (1 - 1e-9)) return factor * decade;
    if (factor * decade <= value * (1 + 1e-9)) below = factor * decade;
  }
  return below;
}

class Plot {
 public:
  explicit Plot(const std::vector<StudySeries>& study) : study_(study) {
    int least = std::numeric_limits<int>::max(), most = 0;
    double fastest = std::numeric_limits<double>::max(), slowest = 0;
    for (const StudySeries& series : study) {
      for (const ClientStudyPoint& point : series.points) {
        // No server means a count beyond these; arithmetic on it must not overflow.
        const int stages = std::clamp(point.plan.stages, 0, 1'000'000);
        least = std::min(least, stages);
        most = std::max(most, stages);
        for (const double seconds : {point.median_seconds, point.plan.predicted_seconds}) {
          if (!Drawn(seconds)) continue;
          fastest = std::min(fastest, seconds * 1e6);
          slowest = std::max(slowest, seconds * 1e6);
        }
      }
    }
    if (slowest == 0) fastest = slowest = 1;
    least_stages_ = std::min(least, most);
    most_stages_ = most;
    least_us_ = Round(fastest, false);
    most_us_ = Round(slowest, true);
    if (least_us_ == most_us_) most_us_ *= 10;
  }

  std::string Text() const {
    const double legend_height = kLegendLine * (static_cast<double>(study_.size()) + 3);
    const double height = kTop + std::max(kPlotHeight, legend_height) + 70;
    const double width = kRight + kLegendWidth;
    std::string text =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
        SvgNumber(width) + "\" height=\"" + SvgNumber(height) + "\" viewBox=\"0 0 " +
        SvgNumber(width) + " " + SvgNumber(height) +
        "\" font-family=\"sans-serif\" font-size=\"14\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
        Label(kLeft + kPlotWidth / 2, 32, "middle", Title(), 18);
    text += Axes();
    for (size_t i = 0; i < study_.size(); ++i) text += Series(i);
    return text + Legend() + "</svg>\n";
  }

 private:
  static bool Drawn(double seconds) { return seconds > 0 && std::isfinite(seconds); }

  double X(int stages) const {
    if (most_stages_ == least_stages_) return kLeft + kPlotWidth / 2;
    // Half a step of room at both ends keeps markers off the frame.
    const double steps = static_cast<double>(most_stages_) - least_stages_ + 1;
    const int within = std::clamp(stages, least_stages_, most_stages_);
    return kLeft + kPlotWidth * (within - least_stages_ + 0.5) / steps;
  }
  double Y(double us) const {
    const double share = std::log(us / least_us_) / std::log(most_us_ / least_us_);
    return kTop + kPlotHeight * (1 - share);
  }

  static std::string Label(double x, double y, const char* anchor, const std::string& text,
                           int size = 14) {
    return "<text x=\"" + SvgNumber(x) + "\" y=\"" + SvgNumber(y) + "\" text-anchor=\"" + anchor +
           "\" font-size=\"" + std::to_string(size) + "\" fill=\"#222222\">" + SvgText(text) +
           "</text>\n";
  }

  static std::string Line(double x1, double y1, double x2, double y2, const std::string& style) {
    return "<line x1=\"" + SvgNumber(x1) + "\" y1=\"" + SvgNumber(y1) + "\" x2=\"" + SvgNumber(x2) +
           "\" y2=\"" + SvgNumber(y2) + "\" " + style + "/>\n";
  }

  std::string Axes() const {
    constexpr const char* kGrid = "stroke=\"#dddddd\" stroke-width=\"1\"";
    std::string text;
    // More than a dozen decades of ticks are nobody's times; the bound is for nonsense.
    double us = least_us_;
    for (int i = 0; i < 100 && us <= most_us_ * (1 + 1e-9); ++i) {
      text += Line(kLeft, Y(us), kRight, Y(us), kGrid);
      text += Label(kLeft - 8, Y(us) + 5, "end", Fixed(us, us < 1 ? 3 : 0));
      us = Round(us * 1.5, true);
    }
    const int step = (most_stages_ - least_stages_) / 16 + 1;
    for (int stages = least_stages_; stages <= most_stages_; stages += step) {
      text += Line(X(stages), kTop, X(stages), kTop + kPlotHeight, kGrid);
      text += Label(X(stages), kTop + kPlotHeight + 20, "middle", std::to_string(stages));
      if (stages > most_stages_ - step) break;
    }
    text += "<rect x=\"" + SvgNumber(kLeft) + "\" y=\"" + SvgNumber(kTop) + "\" width=\"" +
            SvgNumber(kPlotWidth) + "\" height=\"" + SvgNumber(kPlotHeight) +
            "\" fill=\"none\" stroke=\"#222222\"/>\n";
    text += Label(kLeft + kPlotWidth / 2, kTop + kPlotHeight + 46, "middle",
                  "stages S of the pipeline", 16);
    text += "<g transform=\"translate(26 " + SvgNumber(kTop + kPlotHeight / 2) +
            ") rotate(-90)\">\n" +
            Label(0, 0, "middle", "time of one product, microseconds (log scale)", 16) + "</g>\n";
    return text;
  }

  static std::string Marker(size_t series, double x, double y) {
    const std::string fill = "fill=\"" + std::string(Colour(series)) + "\"";
    const auto polygon = [&](std::initializer_list<std::pair<double, double>> corners) {
      std::string points;
      for (const auto& [dx, dy] : corners) {
        points += (points.empty() ? "" : " ") + SvgNumber(x + dx) + "," + SvgNumber(y + dy);
      }
      return "<polygon points=\"" + points + "\" " + fill + "/>\n";
    };
    switch (series % kMarkers) {
      case 1: return polygon({{-4.5, -4.5}, {4.5, -4.5}, {4.5, 4.5}, {-4.5, 4.5}});
      case 2: return polygon({{0, -6}, {5.5, 4}, {-5.5, 4}});
      case 3: return polygon({{0, -6}, {6, 0}, {0, 6}, {-6, 0}});
      default:
        return "<circle cx=\"" + SvgNumber(x) + "\" cy=\"" + SvgNumber(y) + "\" r=\"5\" " + fill +
               "/>\n";
    }
  }

  static const char* Colour(size_t series) { return kColours[series % kColours.size()]; }

  static std::string Stroke(size_t series, bool dashed) {
    return "fill=\"none\" stroke=\"" + std::string(Colour(series)) + "\" stroke-width=\"2\"" +
           (dashed ? " stroke-dasharray=\"7 5\"" : "");
  }

  std::string Curve(size_t index, bool predicted) const {
    std::string points;
    for (const ClientStudyPoint& point : study_[index].points) {
      const double seconds = predicted ? point.plan.predicted_seconds : point.median_seconds;
      if (!Drawn(seconds)) continue;
      points += (points.empty() ? "" : " ") + SvgNumber(X(point.plan.stages)) + "," +
                SvgNumber(Y(seconds * 1e6));
    }
    if (points.empty()) return "";
    return "<polyline points=\"" + points + "\" " + Stroke(index, predicted) + "/>\n";
  }

  std::string Series(size_t index) const {
    std::string text = Curve(index, true) + Curve(index, false);
    for (const ClientStudyPoint& point : study_[index].points) {
      if (!Drawn(point.median_seconds)) continue;
      text += Marker(index, X(point.plan.stages), Y(point.median_seconds * 1e6));
    }
    return text;
  }

  bool OnlyKDiffers() const {
    return std::all_of(study_.begin(), study_.end(), [&](const StudySeries& series) {
      GemmProblem same = series.problem;
      same.k = study_.front().problem.k;
      return ProblemText(same) == ProblemText(study_.front().problem);
    });
  }

  std::string Title() const {
    std::string title = "Time of one product by pipeline stages";
    if (study_.empty() || !OnlyKDiffers()) return title;
    const GemmProblem& problem = study_.front().problem;
    return title + ", M = " + std::to_string(problem.m) + ", N = " + std::to_string(problem.n);
  }

  // What tells the series apart: names, K alone where all else is alike, or the whole shape.
  std::string NameOf(const StudySeries& series) const {
    if (!series.name.empty()) return series.name;
    return OnlyKDiffers() ? "K = " + std::to_string(series.problem.k) : ProblemText(series.problem);
  }

  std::string Legend() const {
    const double x = kRight + 24;
    double y = kTop + 12;
    std::string text;
    for (size_t i = 0; i < study_.size(); ++i, y += kLegendLine) {
      text += Line(x, y, x + 36, y, Stroke(i, false)) + Marker(i, x + 18, y);
      text += Label(x + 46, y + 5, "start", NameOf(study_[i]));
    }
    y += kLegendLine / 2;
    constexpr const char* kGrey = "stroke=\"#222222\" stroke-width=\"2\"";
    text += Line(x, y, x + 36, y, kGrey) + Label(x + 46, y + 5, "start", "measured, median");
    y += kLegendLine;
    text += Line(x, y, x + 36, y, std::string(kGrey) + " stroke-dasharray=\"7 5\"") +
            Label(x + 46, y + 5, "start", "predicted by the model");
    return text;
  }

  const std::vector<StudySeries>& study_;
  int least_stages_ = 0, most_stages_ = 0;
  double least_us_ = 1, most_us_ = 10;
};

}  // namespace

std::string StudySvg(const std::vector<StudySeries>& study) { return Plot(study).Text(); }

}  // namespace gemmd
