// wgmma: D (64 x N, fp32, in registers) += A (64 x 16) * B (16 x N), both in shared memory, sm_90a.
//
// One warpgroup issues it together. T is the operands' type; kTransA and kTransB say that an
// operand is K-strided ("MN-major") in shared memory. `keep` = 0 overwrites D. Element (row, col)
// of D is held by thread 32 * (row / 16) + 4 * (row % 8) + col % 8 / 2 of the warpgroup, in
// register col / 8 * 4 + row % 16 / 8 * 2 + col % 2.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace gemmd::ptx {

// Operand lists: registers %0 to %(n - 1) as text, and d[0] to d[n - 1] as constraints.
#define GEMMD_WGMMA_TEXT_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define GEMMD_WGMMA_REGS_32(d)                                                                    \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
      "+f"(d[15])
#define GEMMD_WGMMA_TEXT_64 \
  GEMMD_WGMMA_TEXT_32       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GEMMD_WGMMA_REGS_64(d)                                                                   \
  GEMMD_WGMMA_REGS_32(d), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),       \
      "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
      "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define GEMMD_WGMMA_TEXT_128                                                                   \
  GEMMD_WGMMA_TEXT_64                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "                        \
  "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, " \
  "%63"
#define GEMMD_WGMMA_REGS_128(d)                                                                  \
  GEMMD_WGMMA_REGS_64(d), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),       \
      "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), \
      "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), \
      "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), \
      "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define GEMMD_WGMMA_TEXT_176                                                                \
  GEMMD_WGMMA_TEXT_128                                                                      \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
  "%81, %82, %83, %84, %85, %86, %87"
#define GEMMD_WGMMA_REGS_176(d)                                                                  \
  GEMMD_WGMMA_REGS_128(d), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]),      \
      "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), \
      "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), \
      "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define GEMMD_WGMMA_TEXT_192 GEMMD_WGMMA_TEXT_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define GEMMD_WGMMA_REGS_192(d)                                                             \
  GEMMD_WGMMA_REGS_176(d), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), \
      "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define GEMMD_WGMMA_TEXT_256                                                                   \
  GEMMD_WGMMA_TEXT_192                                                                         \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "                     \
  "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, " \
  "%123, %124, %125, %126, %127"
#define GEMMD_WGMMA_REGS_256(d)                                                              \
  GEMMD_WGMMA_REGS_192(d), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), \
      "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]),    \
      "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]),    \
      "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]),    \
      "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]),    \
      "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

#define GEMMD_WGMMA(N, type, a_operand, b_operand, keep_operand)                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " keep_operand                 \
               ", 0;\n"                                                         \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type  \
               " {" GEMMD_WGMMA_TEXT_##N "}, " a_operand ", " b_operand         \
                                         ", p, 1, 1, %" GEMMD_WGMMA_TRANS_A_##N \
               ", %" GEMMD_WGMMA_TRANS_B_##N ";\n}\n"                           \
               : GEMMD_WGMMA_REGS_##N(d)                                        \
               : "l"(a), "l"(b), "r"(keep), "n"(kTransA), "n"(kTransB))

#define GEMMD_WGMMA_TRANS_A_32 "19"
#define GEMMD_WGMMA_TRANS_B_32 "20"
#define GEMMD_WGMMA_TRANS_A_64 "35"
#define GEMMD_WGMMA_TRANS_B_64 "36"
#define GEMMD_WGMMA_TRANS_A_128 "67"
#define GEMMD_WGMMA_TRANS_B_128 "68"
#define GEMMD_WGMMA_TRANS_A_176 "91"
#define GEMMD_WGMMA_TRANS_B_176 "92"
#define GEMMD_WGMMA_TRANS_A_192 "99"
#define GEMMD_WGMMA_TRANS_B_192 "100"
#define GEMMD_WGMMA_TRANS_A_256 "131"
#define GEMMD_WGMMA_TRANS_B_256 "132"

// A matrix descriptor from its words.
__device__ __forceinline__ uint64_t Join(uint32_t low, uint32_t high) {
  uint64_t joined;
  asm("mov.b64 %0, {%1, %2};\n" : "=l"(joined) : "r"(low), "r"(high));
  return joined;
}

template <typename T, int kN, bool kTransA, bool kTransB>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[kN / 2], uint64_t a, uint64_t b, int keep) {
  constexpr bool kHalf = sizeof(T) == 2 && __is_same(T, __half);
  if constexpr (kN == 32 && kHalf) {
    GEMMD_WGMMA(32, "f16", "%16", "%17", "%18");
  } else if constexpr (kN == 32) {
    GEMMD_WGMMA(32, "bf16", "%16", "%17", "%18");
  } else if constexpr (kN == 64 && kHalf) {
    GEMMD_WGMMA(64, "f16", "%32", "%33", "%34");
  } else if constexpr (kN == 64) {
    GEMMD_WGMMA(64, "bf16", "%32", "%33", "%34");
  } else if constexpr (kN == 128 && kHalf) {
    GEMMD_WGMMA(128, "f16", "%64", "%65", "%66");
  } else if constexpr (kN == 128) {
    GEMMD_WGMMA(128, "bf16", "%64", "%65", "%66");
  } else if constexpr (kN == 176 && kHalf) {
    GEMMD_WGMMA(176, "f16", "%88", "%89", "%90");
  } else if constexpr (kN == 176) {
    GEMMD_WGMMA(176, "bf16", "%88", "%89", "%90");
  } else if constexpr (kN == 192 && kHalf) {
    GEMMD_WGMMA(192, "f16", "%96", "%97", "%98");
  } else if constexpr (kN == 192) {
    GEMMD_WGMMA(192, "bf16", "%96", "%97", "%98");
  } else if constexpr (kN == 256 && kHalf) {
    GEMMD_WGMMA(256, "f16", "%128", "%129", "%130");
  } else if constexpr (kN == 256) {
    GEMMD_WGMMA(256, "bf16", "%128", "%129", "%130");
  } else {
    static_assert(kN == 0, "no wgmma of this N here");
  }
}

}  // namespace gemmd::ptx
