#include "client/plan_table.h"

#include "kernels/core/tables.h"

namespace gemmd {
namespace {

std::string Parts(const ClientPlan& plan) {
  if (!plan.pair) return std::to_string(plan.split_k);
  return plan.split_k > 1 ? std::to_string(plan.split_k) + ", pair" : "pair";
}

std::vector<std::string> PlanCells(const ClientPlan& plan) {
  const auto time = [](double seconds) { return seconds > 0 ? Time(seconds) : std::string("-"); };
  return {plan.kernel,
          std::to_string(plan.stages),
          plan.limit,
          Parts(plan),
          plan.registers > 0 ? std::to_string(plan.registers) : "-",
          std::to_string(plan.resident_blocks),
          plan.waves > 0 ? Fixed(plan.waves, 2) : "-",
          Fixed(static_cast<double>(plan.smem_bytes) / 1024, 0) + " KiB",
          time(plan.predicted_seconds),
          time(plan.measured_seconds)};
}

}  // namespace

std::string PlanTable(const std::vector<ClientPlan>& plans) {
  std::vector<std::vector<std::string>> rows = {
      {"KERNEL", "S", "LIMIT", "PARTS", "REGS", "BLK/SM", "WAVES", "SMEM", "MODEL", "MEASURED"}};
  for (const ClientPlan& plan : plans) rows.push_back(PlanCells(plan));
  return TableText(rows);
}

}  // namespace gemmd
