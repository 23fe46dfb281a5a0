// Every (kernel, stage count) that the table allows, numbered: what is counted per launch is an
// array over these.
#pragma once

#include <algorithm>

#include "kernels/plan/kernel_table.h"

namespace gemmd {

struct LaunchSlot {
  int row;     // into kKernelTable
  int stages;  // 0 for a kernel without a ring
};

constexpr int SlotsOfRow(int row) { return std::max(kKernelTable[row].config.max_stages, 1); }

constexpr int FirstSlotOfRow(int row) {
  int first = 0;
  for (int before = 0; before < row; ++before) first += SlotsOfRow(before);
  return first;
}

inline constexpr int kLaunchSlots = FirstSlotOfRow(kKernelRows);

// -1 for what the table does not have: an empty product, or stages beyond the row's.
constexpr int SlotOf(int row, int stages) {
  if (row < 0 || row >= kKernelRows) return -1;
  const int max_stages = kKernelTable[row].config.max_stages;
  if (max_stages == 0) return stages == 0 ? FirstSlotOfRow(row) : -1;
  return stages >= 1 && stages <= max_stages ? FirstSlotOfRow(row) + stages - 1 : -1;
}

// Precondition: 0 <= slot < kLaunchSlots.
constexpr LaunchSlot SlotAt(int slot) {
  int row = 0;
  while (slot >= SlotsOfRow(row)) slot -= SlotsOfRow(row++);
  return {row, kKernelTable[row].config.max_stages == 0 ? 0 : slot + 1};
}

}  // namespace gemmd
