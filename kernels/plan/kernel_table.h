// The one list of kernels. The planner searches it, the launcher has an entry for each row, tests
// and documents iterate it. Adding a kernel is a row here and an instance in
// kernels/cuda/instances.
#pragma once

#include <iterator>
#include <string_view>

#include "kernels/plan/kernel_config.h"

namespace gemmd {

struct KernelRow {
  std::string_view name;  // metric label and log word: a closed set
  KernelConfig config;
};

inline constexpr KernelRow kKernelTable[] = {
    {"cp_async_128x256x32",
     {.family = Family::kCpAsyncMma,
      .block_m = 128,
      .block_n = 256,
      .block_k = 32,
      .warps_m = 2,
      .warps_n = 4,
      .min_blocks_per_sm = 1,
      .max_stages = 8}},
    {"cp_async_128x128x64",
     {.family = Family::kCpAsyncMma,
      .block_m = 128,
      .block_n = 128,
      .block_k = 64,
      .warps_m = 2,
      .warps_n = 2,
      .min_blocks_per_sm = 2,
      .max_stages = 7}},
    {"cp_async_128x64x64",
     {.family = Family::kCpAsyncMma,
      .block_m = 128,
      .block_n = 64,
      .block_k = 64,
      .warps_m = 2,
      .warps_n = 2,
      .min_blocks_per_sm = 3,
      .max_stages = 8}},
    {"cp_async_64x64x64",
     {.family = Family::kCpAsyncMma,
      .block_m = 64,
      .block_n = 64,
      .block_k = 64,
      .warps_m = 2,
      .warps_n = 2,
      .min_blocks_per_sm = 4,
      .max_stages = 8}},
    {"simt_128x128x16",
     {.family = Family::kCpAsyncSimt,
      .block_m = 128,
      .block_n = 128,
      .block_k = 16,
      .warps_m = 4,
      .warps_n = 2,
      .min_blocks_per_sm = 1,
      .max_stages = 6}},
    {"simt_64x64x16",
     {.family = Family::kCpAsyncSimt,
      .block_m = 64,
      .block_n = 64,
      .block_k = 16,
      .warps_m = 2,
      .warps_n = 2,
      .min_blocks_per_sm = 4,
      .max_stages = 6}},
    {"tma_wgmma_128x256x64",
     {.family = Family::kTmaWgmma,
      .block_m = 128,
      .block_n = 256,
      .block_k = 64,
      .warps_m = 8,
      .warps_n = 1,
      .min_blocks_per_sm = 1,
      .max_stages = 4}},
    {"tma_wgmma_256x128x64",
     {.family = Family::kTmaWgmma,
      .block_m = 256,
      .block_n = 128,
      .block_k = 64,
      .warps_m = 8,
      .warps_n = 1,
      .min_blocks_per_sm = 1,
      .max_stages = 4}},
    {"tma_wgmma_192x192x64",
     {.family = Family::kTmaWgmma,
      .block_m = 192,
      .block_n = 192,
      .block_k = 64,
      .warps_m = 12,
      .warps_n = 1,
      .min_blocks_per_sm = 1,
      .max_stages = 3}},
    {"tma_wgmma_128x192x64",
     {.family = Family::kTmaWgmma,
      .block_m = 128,
      .block_n = 192,
      .block_k = 64,
      .warps_m = 8,
      .warps_n = 1,
      .min_blocks_per_sm = 1,
      .max_stages = 4}},
    {"tma_wgmma_128x128x64",
     {.family = Family::kTmaWgmma,
      .block_m = 128,
      .block_n = 128,
      .block_k = 64,
      .warps_m = 8,
      .warps_n = 1,
      .min_blocks_per_sm = 1,
      .max_stages = 6}},
    {"tma_wgmma_128x64x64",
     {.family = Family::kTmaWgmma,
      .block_m = 128,
      .block_n = 64,
      .block_k = 64,
      .warps_m = 8,
      .warps_n = 1,
      .min_blocks_per_sm = 1,
      .max_stages = 8}},
    {"tma_wgmma_64x128x64",
     {.family = Family::kTmaWgmma,
      .block_m = 64,
      .block_n = 128,
      .block_k = 64,
      .warps_m = 4,
      .warps_n = 1,
      .min_blocks_per_sm = 1,
      .max_stages = 8}},
    {"tma_wgmma_64x64x128",
     {.family = Family::kTmaWgmma,
      .block_m = 64,
      .block_n = 64,
      .block_k = 128,
      .warps_m = 4,
      .warps_n = 1,
      .min_blocks_per_sm = 1,
      .max_stages = 6}},
    {"tma_wgmma_64x32x128",
     {.family = Family::kTmaWgmma,
      .block_m = 64,
      .block_n = 32,
      .block_k = 128,
      .warps_m = 4,
      .warps_n = 1,
      .min_blocks_per_sm = 1,
      .max_stages = 8}},
    {"epilogue_only", {.family = Family::kEpilogueOnly}},
    {"openblas", {.family = Family::kBlas}},
};

inline constexpr int kKernelRows = static_cast<int>(std::size(kKernelTable));

// Row index of a name; -1 when there is none.
constexpr int RowByName(std::string_view name) {
  for (int row = 0; row < kKernelRows; ++row) {
    if (kKernelTable[row].name == name) return row;
  }
  return -1;
}

constexpr int RowOfFamily(Family family) {  // the first one
  for (int row = 0; row < kKernelRows; ++row) {
    if (kKernelTable[row].config.family == family) return row;
  }
  return -1;
}

}  // namespace gemmd
