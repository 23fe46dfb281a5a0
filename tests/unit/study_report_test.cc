#include "client/study_report.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "client/study_plot.h"

namespace gemmd {
namespace {

NamedProblem Named(const std::string& name, const std::string& shape) {
  NamedProblem named = *ParseShape(shape, {});
  named.name = name;
  return named;
}

ClientStudyPoint Point(const GemmProblem& problem, int stages, double us, double predicted_us) {
  ClientStudyPoint point;
  point.problem = problem;
  point.plan.kernel = "wgmma_128x128x64";
  point.plan.stages = stages;
  point.plan.split_k = 1;
  point.plan.limit = "forced";
  point.plan.resident_blocks = 1;
  point.plan.smem_bytes = 1024 + int64_t{32768} * stages;
  point.plan.registers = 168;
  point.plan.waves = 1.5;
  point.plan.predicted_seconds = predicted_us / 1e6;
  point.median_seconds = us / 1e6;
  point.spread_seconds = 0.25 / 1e6;
  return point;
}

// Two problems; of the first S = 3 is best and S = 2 within 2 % of it.
struct Sample {
  std::vector<NamedProblem> problems = {Named("", "4096x4096x512"), Named("", "4096x4096x64")};
  std::vector<ClientStudyPoint> points;
  Sample() {
    const GemmProblem &a = problems[0].problem, &b = problems[1].problem;
    points = {Point(a, 3, 40, 38), Point(b, 1, 11, 0), Point(a, 1, 80, 76), Point(a, 2, 40.5, 39)};
    points[2].stalls = {.measured = true,
                        .wait_full = 500,
                        .wait_empty = 125,
                        .mainloop = 1000,
                        .epilogue = 10,
                        .k_tiles = 8};
  }
  std::vector<StudySeries> Grouped() const { return GroupStudy(problems, points); }
};

TEST(StudyReportTest, PointsAreGroupedByProblemAndOrderedByStages) {
  const std::vector<StudySeries> study = Sample().Grouped();
  ASSERT_EQ(study.size(), 2U);
  ASSERT_EQ(study[0].points.size(), 3U);
  EXPECT_EQ(study[0].points[0].plan.stages, 1);
  EXPECT_EQ(study[0].points[2].plan.stages, 3);
  EXPECT_EQ(study[1].problem.k, 64);
}

TEST(StudyReportTest, AProblemTwiceOrWithoutPointsIsLeftOut) {
  Sample sample;
  sample.problems = {sample.problems[1], Named("other", "1x1x1"), sample.problems[1]};
  const std::vector<StudySeries> study = sample.Grouped();
  ASSERT_EQ(study.size(), 1U);
  EXPECT_EQ(study[0].problem.k, 64);
}

TEST(StudyReportTest, TheVerdictIsTheBestTheFewestAndTheSingleBuffer) {
  const std::vector<StudySeries> study = Sample().Grouped();
  const std::optional<StudyVerdict> verdict = Judge(study[0]);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->best_stages, 3);
  EXPECT_EQ(verdict->enough_stages, 2);
  EXPECT_DOUBLE_EQ(*verdict->single_over_best, 2);
  EXPECT_DOUBLE_EQ(*verdict->predicted_single_over_best, 2);
}

TEST(StudyReportTest, TwoPercentIsTheEdge) {
  Sample sample;
  sample.points[3].median_seconds = 40.9 / 1e6;  // 2.25 % above
  EXPECT_EQ(Judge(sample.Grouped()[0])->enough_stages, 3);
}

TEST(StudyReportTest, WhatWasNotMeasuredIsNotJudged) {
  Sample sample;
  for (ClientStudyPoint& point : sample.points) point.median_seconds = 0;
  EXPECT_FALSE(Judge(sample.Grouped()[0]));
  sample = Sample();
  sample.points.erase(sample.points.begin() + 2);  // S = 1
  EXPECT_FALSE(Judge(sample.Grouped()[0])->single_over_best);
}

TEST(StudyReportTest, TheTableIsAsDocumented) {
  EXPECT_EQ(
      StudyTable(Sample().Grouped()[0]),
      "bf16 NN 4096x4096x512, wgmma_128x128x64\n"
      "S  TIME us  SPREAD us  TFLOP/s  MODEL us  FULL %  EMPTY %  BLK/SM  SMEM KiB\n"
      "1  80.00    0.25       214.7    76.00     50.0    12.5     1       33.0\n"
      "2  40.50    0.25       424.2    39.00     -       -        1       65.0      fewest within "
      "2 %\n"
      "3  40.00    0.25       429.5    38.00     -       -        1       97.0      best\n"
      "single buffer / best ring = 2.00 (L + C over max(L, C)), by the model 2.00\n");
}

TEST(StudyReportTest, TheSummaryHasARowForEachProblem) {
  const std::vector<StudySeries> study = Sample().Grouped();
  EXPECT_EQ(StudySummary({study[0]}), "");
  EXPECT_EQ(StudySummary(study),
            "SHAPE                  K    BEST S  FEWEST S WITHIN 2 %  SINGLE / BEST  BY THE MODEL\n"
            "bf16 NN 4096x4096x512  512  3       2                    2.00           2.00\n"
            "bf16 NN 4096x4096x64   64   1       1                    1.00           -\n");
}

TEST(StudyReportTest, CsvIsExact) {
  Sample sample;
  sample.problems[0].name = "a \"b\", c";
  EXPECT_EQ(StudyCsv(sample.Grouped()),
            "name,dtype,layout,m,n,k,batch,kernel,stages,split_k,pair,median_seconds,"
            "spread_seconds,tflops,predicted_seconds,wait_full_cycles,wait_empty_cycles,"
            "mainloop_cycles,epilogue_cycles,k_tiles,resident_blocks,smem_bytes,registers,waves,"
            "limit\n"
            "\"a \"\"b\"\", c\",bf16,NN,4096,4096,512,1,wgmma_128x128x64,1,1,0,8e-05,2.5e-07,"
            "214.748,7.6e-05,500,125,1000,10,8,1,33792,168,1.5,forced\n"
            "\"a \"\"b\"\", c\",bf16,NN,4096,4096,512,1,wgmma_128x128x64,2,1,0,4.05e-05,2.5e-07,"
            "424.194,3.9e-05,,,,,,1,66560,168,1.5,forced\n"
            "\"a \"\"b\"\", c\",bf16,NN,4096,4096,512,1,wgmma_128x128x64,3,1,0,4e-05,2.5e-07,"
            "429.497,3.8e-05,,,,,,1,99328,168,1.5,forced\n"
            ",bf16,NN,4096,4096,64,1,wgmma_128x128x64,1,1,0,1.1e-05,2.5e-07,"
            "195.226,,,,,,,1,33792,168,1.5,forced\n");
}

TEST(StudyReportTest, JsonHasTheVerdictAndEveryPoint) {
  Sample sample;
  sample.points.resize(2);
  const std::string text = StudyJson(sample.Grouped()).text();
  EXPECT_EQ(text.rfind("{\"shapes\": [{\"name\": null, \"problem\": \"bf16 NN 4096x4096x512\"", 0),
            0U)
      << text;
  EXPECT_NE(text.find("\"verdict\": {\"best_stages\": 3, \"fewest_stages_within_2_percent\": 3, "
                      "\"single_buffer_over_best\": null"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\"median_seconds\": 4e-05"), std::string::npos) << text;
}

// Whether every element is closed, in order, attributes are quoted, and text has no bare & or <.
std::string XmlFault(const std::string& text) {
  std::vector<std::string> open;
  size_t at = 0;
  if (text.rfind("<?xml", 0) == 0) at = text.find("?>") + 2;
  while (at < text.size()) {
    if (text[at] != '<') {
      if (text[at] == '&' && text.compare(at, 5, "&amp;") != 0 &&
          text.compare(at, 4, "&lt;") != 0 && text.compare(at, 4, "&gt;") != 0 &&
          text.compare(at, 6, "&quot;") != 0) {
        return "a bare & at " + std::to_string(at);
      }
      const auto byte = static_cast<unsigned char>(text[at]);
      if (byte != '\n' && (byte < 0x20 || byte > 0x7e)) return "byte " + std::to_string(byte);
      ++at;
      continue;
    }
    const size_t end = text.find('>', at);
    if (end == std::string::npos) return "a tag without end";
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return "a bare < in " + tag;
    size_t quotes = 0;
    for (const char ch : tag) quotes += ch == '"' ? 1 : 0;
    if (quotes % 2 != 0) return "quotes of " + tag;
    const std::string name = tag.substr(0, tag.find(' '));
    if (name[0] == '/') {
      if (open.empty() || "/" + open.back() != name) return "unexpected " + name;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end + 1;
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(StudyPlotTest, TheCheckOfXmlFindsFaults) {
  EXPECT_EQ(XmlFault("<a b=\"c\"><d/>&amp;</a>\n"), "");
  for (const char* text :
       {"<a>", "<a></b>", "</a>", "<a b=\"c>", "&", "<a", "<a <b/></a>", "\x01"}) {
    EXPECT_NE(XmlFault(text), "") << text;
  }
}

TEST(StudyPlotTest, EachSeriesHasALineMarkersAndADashedPrediction) {
  const std::string svg = StudySvg(Sample().Grouped());
  EXPECT_EQ(XmlFault(svg), "") << svg;
  // Three measured points, one of which has no prediction; a line each in the legend.
  EXPECT_EQ(Count(svg, "<polyline"), 3U) << svg;
  EXPECT_EQ(Count(svg, "stroke=\"#0072b2\" stroke-width=\"2\" stroke-dasharray"), 1U);
  EXPECT_EQ(Count(svg, "<circle"), 4U);  // three points and the legend's
  for (const char* text : {"K = 512", "K = 64", "M = 4096, N = 4096", "stages S of the pipeline",
                           "microseconds (log scale)", "predicted by the model"}) {
    EXPECT_EQ(Count(svg, text), 1U) << text;
  }
}

TEST(StudyPlotTest, TimeIsOnALogarithmicScale) {
  Sample sample;
  const GemmProblem& a = sample.problems[0].problem;
  sample.points = {Point(a, 1, 100, 0), Point(a, 2, 10, 0), Point(a, 3, 1, 0)};
  const std::string svg = StudySvg(sample.Grouped());
  // The frame is 420 high from 60 on: equal ratios are equal distances.
  EXPECT_NE(svg.find(",60.0 410.0,270.0 "), std::string::npos) << svg;
  EXPECT_NE(svg.find(",480.0\""), std::string::npos) << svg;
}

TEST(StudyPlotTest, NamesAreEscaped) {
  Sample sample;
  sample.problems[0].name = "<&>\"\x01\xff";
  const std::string svg = StudySvg(sample.Grouped());
  EXPECT_EQ(XmlFault(svg), "") << svg;
  EXPECT_NE(svg.find("&lt;&amp;&gt;&quot;??"), std::string::npos);
}

TEST(StudyPlotTest, OddStudiesAreStillDocuments) {
  EXPECT_EQ(XmlFault(StudySvg({})), "");
  Sample sample;
  const GemmProblem& a = sample.problems[0].problem;
  sample.points = {Point(a, 0, 7, 0)};  // no ring
  EXPECT_EQ(XmlFault(StudySvg(sample.Grouped())), "");
  sample.points = {Point(a, -2147483647, 1e-300, 1e300), Point(a, 2147483647, 0, -1)};
  sample.points[0].median_seconds = std::numeric_limits<double>::infinity();
  EXPECT_EQ(XmlFault(StudySvg(sample.Grouped())), "");
}

}  // namespace
}  // namespace gemmd
