#include "kernels/lab/hazard_report.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/core/tables.h"

namespace gemmd::lab {
namespace {

const char* Name(Origin origin) {
  switch (origin) {
    case Origin::kPanel: return "panel";
    case Origin::kUnfilled: return "unfilled";
    case Origin::kMixed: break;
  }
  return "mixed";
}

Json ExamplesJson(const std::vector<Example>& examples) {
  Json list = Json::Array();
  for (const auto& [iteration, wrong] : examples) {
    Json example = Json::Object();
    example.Set("iteration", iteration)
        .Set("block", wrong.block)
        .Set("step", wrong.step)
        .Set("warp", wrong.warp)
        .Set("expected", wrong.expected)
        .Set("found", wrong.found)
        .Set("origin", Name(wrong.origin));
    if (wrong.origin == Origin::kPanel) example.Set("from_step", wrong.from_step);
    list.Add(example);
  }
  return list;
}

std::string Percent(double part, double whole) {
  return whole > 0 ? Fixed(100 * part / whole, 1) + " %" : "-";
}

}  // namespace

const std::vector<Hazard>& Hazards() {
  static const std::vector<Hazard> kHazards = {
      {Fault::kNoReuse, "overwrite",
       "reuse: the refill of a slot waits until every warp has read it",
       "The copies of a later panel land in the slot while a slow warp still has its rows to read. "
       "It then sums the later panel's words, and nothing tells it so."},
      {Fault::kReuseAfterSome, "partial_reuse",
       "reuse, of one warp: the refill waits for all warps but the last",
       "A slot is free when its last reader has read it. Waiting for most of them is waiting for "
       "none of the others: the one that is late reads a later panel's words."},
      {Fault::kNoReady, "ready", "ready: a warp reads a slot when its panel has landed",
       "The copies of the panel are still under way when the slot is read. It holds the panel of "
       "a turn before, what was there before the first copy, or words of both. A delay of the "
       "reader hides it: whoever comes late enough finds the panel."},
      {Fault::kIssueForCompletion, "issue_for_completion",
       "ready, in part: what is waited for is that the copies were issued, not that they landed",
       "An asynchronous copy has returned when it has been issued. A barrier behind the call "
       "orders the calls and says nothing of the data: the slot may hold the panel of a turn "
       "before."},
  };
  return kHazards;
}

std::string OriginText(const WrongSum& wrong) {
  switch (wrong.origin) {
    case Origin::kPanel: {
      const int later = wrong.from_step - wrong.step;
      return "step " + std::to_string(wrong.from_step) + "'s panel, " +
             std::to_string(std::abs(later)) + (later > 0 ? " later" : " earlier");
    }
    case Origin::kUnfilled: return "the slot before its first copy";
    case Origin::kMixed: break;
  }
  return "words of several panels";
}

Json HazardJson(const HazardRow& row) {
  return Json::Object()
      .Set("hazard", row.hazard->name)
      .Set("removed", row.hazard->removed)
      .Set("mechanism", Name(row.mechanism))
      .Set("iterations", row.iterations)
      .Set("delay_cycles", row.delay_clocks)
      .Set("correct_failures", row.correct_failures)
      .Set("broken_failures", row.broken_failures)
      .Set("sums", row.sums)
      .Set("broken_wrong_sums", row.broken_wrong_sums)
      .Set("seed", row.seed)
      .Set("stages", row.stages)
      .Set("array_rows", row.array.rows())
      .Set("array_cols", row.array.cols())
      .Set("first_wrong", ExamplesJson(row.first_wrong))
      .Set("first_correct_wrong", ExamplesJson(row.first_correct_wrong));
}

std::string HazardReport(const std::vector<HazardRow>& rows) {
  std::vector<std::vector<std::string>> table = {
      {"hazard", "copies", "delay", "iterations", "correct fails", "broken fails", "wrong sums"}};
  for (const HazardRow& row : rows) {
    table.push_back(
        {row.hazard->name, Name(row.mechanism), std::to_string(row.delay_clocks),
         std::to_string(row.iterations), std::to_string(row.correct_failures),
         std::to_string(row.broken_failures),
         Percent(static_cast<double>(row.broken_wrong_sums), static_cast<double>(row.sums))});
  }
  std::string text = TableText(table);
  for (const Hazard& hazard : Hazards()) {
    const auto of_it = [&](const HazardRow& row) { return row.hazard == &hazard; };
    if (std::none_of(rows.begin(), rows.end(), of_it)) continue;
    text += std::string("\n") + hazard.name + "\n  removed: " + hazard.removed + "\n  " +
            hazard.why + "\n";
    for (const HazardRow& row : rows) {
      if (!of_it(row) || row.first_wrong.empty()) continue;
      const auto& [iteration, wrong] = row.first_wrong.front();
      text += std::string("  ") + Name(row.mechanism) + ", delay " +
              std::to_string(row.delay_clocks) + ": iteration " + std::to_string(iteration) +
              ", block " + std::to_string(wrong.block) + ", step " + std::to_string(wrong.step) +
              ", warp " + std::to_string(wrong.warp) + ": " + std::to_string(wrong.expected) +
              " expected, " + std::to_string(wrong.found) + " found: " + OriginText(wrong) + "\n";
    }
  }
  return text;
}

}  // namespace gemmd::lab
