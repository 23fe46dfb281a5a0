// A few vectors times a matrix: D with at most four rows, or at most four columns. The matrix is
// read once, from device memory straight to registers, with enough loads under way to keep the
// memory busy; the vectors come from L1.
//
// The matrix is a list of lines, one for each element of a result vector (plan/gemv_shape.h).
//  - K along its rows: a line is a row. A warp has kGemvRows of them and walks K, 32 chunks of 8
//    values at a time; warps_per_line warps share out K.
//  - K across its rows: a line is a column. A thread has 8 adjacent ones and walks K; lanes_across
//    threads have the next columns, all others of the block share out K.
//
// What threads have summed up meets in fixed order, by shuffles and then in shared memory: the same
// bits every time.
#pragma once

#include <type_traits>

#include "kernels/cuda/device/epilogue.cuh"
#include "kernels/cuda/device/ptx/ptx.cuh"
#include "kernels/cuda/gemv_params.h"
#include "kernels/plan/gemv_shape.h"

namespace gemmd {

inline constexpr int kGemvThreads = 32 * kGemvWarps;
inline constexpr int kChunkElements = 8;  // 16 bytes

// Stays packed until it is multiplied: unpacked elements of all loads under way would not fit the
// registers.
struct alignas(16) Chunk {
  uint32_t words[4];
};

__device__ __forceinline__ Chunk LoadStreamed(const void* from) {
  const uint4 v = ptx::ld_global_nc_no_allocate_v4(from);
  return {v.x, v.y, v.z, v.w};
}

// Puts zeros in place of what lies beyond the end of a row, which may be NaN.
__device__ __forceinline__ void CutOff(Chunk& chunk, int valid) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (valid <= 2 * i) chunk.words[i] = 0;
    if (valid == 2 * i + 1) chunk.words[i] &= 0xffff;
  }
}

template <typename T>
__device__ __forceinline__ float2 Unpack(uint32_t word);
template <>
__device__ __forceinline__ float2 Unpack<__half>(uint32_t word) {
  return __half22float2(reinterpret_cast<const __half2&>(word));
}
template <>
__device__ __forceinline__ float2 Unpack<__nv_bfloat16>(uint32_t word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000)};
}

// Where K ends, in chunks.
struct KEnd {
  int whole, rest;  // chunks that are whole, and elements of one after them
  __device__ explicit KEnd(int k) : whole(k / kChunkElements), rest(k % kChunkElements) {}
  __device__ int chunks() const { return whole + (rest > 0 ? 1 : 0); }
  __device__ int ElementsOf(int chunk) const {
    return chunk < whole ? kChunkElements : chunk == whole ? rest : 0;
  }
};

// `count` vectors of at most kVectors. Those that there are not read as any of the others, or as
// garbage; nobody asks for their results.
template <typename T, int kVectors, bool kKContiguous>
struct Vectors {
  const T* base;
  int64_t ld;
  int count;

  // 8 values of each, the first `valid` of them: zeros from there on. The chunk exists. No load
  // stands in a branch: they would wait for one another.
  __device__ void Load(Chunk (&out)[kVectors], int chunk, int valid) const {
    const int64_t k = int64_t{chunk} * kChunkElements;
    if constexpr (kKContiguous) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        out[v] = *reinterpret_cast<const Chunk*>(base + Row(v) * ld + k);
        CutOff(out[v], valid);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kChunkElements; ++i) {
        Run<uint16_t, kVectors> row = At(k + min(i, valid - 1));
        if (i >= valid) row = {};
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          uint32_t& word = out[v].words[i / 2];
          word = i % 2 == 0 ? row.v[v] : word | uint32_t{row.v[v]} << 16;
        }
      }
    }
  }

  // All of them at one value of K, where K is across the rows: 16 bytes of a row always exist.
  __device__ Run<uint16_t, kVectors> At(int64_t k) const {
    return *reinterpret_cast<const Run<uint16_t, kVectors>*>(base + k * ld);
  }

 private:
  __device__ int Row(int v) const { return v == 0 ? 0 : min(v, count - 1); }
};

// Vectors with K across their rows, for warps that need it along them: pieces of K, turned around
// in shared memory.
template <typename T, int kVectors>
struct TurnedVectors {
  static constexpr int kChunks = 512;
  static constexpr int kElements = kChunks * kChunkElements;
  using Memory = uint16_t[kVectors][kElements];

  // To be called by the whole block.
  __device__ static void Turn(Memory& memory, const Vectors<T, kVectors, false>& from,
                              int first_chunk, int k) {
    const int first = static_cast<int>(threadIdx.x);
    const int count = min(kElements, k - first_chunk * kChunkElements);
    constexpr int kTurns = kElements / kGemvThreads;
    Run<uint16_t, kVectors> rows[kTurns];  // all loads under way at once
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int at = min(first + turn * kGemvThreads, count - 1);
      rows[turn] = from.At(int64_t{first_chunk} * kChunkElements + at);
    }
    __syncthreads();  // the piece before has been read
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) memory[v][first + turn * kGemvThreads] = rows[turn].v[v];
    }
    __syncthreads();
  }
};

// K along the rows of the matrix.
template <typename T, int kVectors>
struct GemvAlongRows {
  // Of each row that are under way at once. Four of them and four vectors spill on sm_8x.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr int kLoads = kVectors == 1 ? 4 : 2;
#else
  static constexpr int kLoads = kVectors == 2 ? 2 : 4;
#endif
  static constexpr int kRestLoads = 2;        // of the last, incomplete batch
  static constexpr int kBatch = 32 * kLoads;  // chunks that a warp reads of each row at once
  using Sums = float[kGemvRows][kVectors];
  using Shared = float[kGemvWarps][kGemvRows][kVectors];
  static_assert(TurnedVectors<T, kVectors>::kChunks % kBatch == 0);

  // Adds the products of this lane's chunks, kCount of them, 32 apart. `chunk` is its first, and
  // `x_chunk` the same counted from where x begins.
  template <bool kWhole, int kCount>
  __device__ static void Multiply(Sums& sums, const T* const (&rows)[kGemvRows],
                                  const Vectors<T, kVectors, true>& x, int chunk, int x_chunk,
                                  KEnd end) {
    // From this lane's chunk to that of a load: of those beyond the end, the last.
    const int last = end.chunks() - 1 - chunk;
    const auto ahead = [last](int load) { return kWhole ? 32 * load : min(32 * load, last); };
    Chunk w[kCount][kGemvRows];
#pragma unroll
    for (int load = 0; load < kCount; ++load) {
#pragma unroll
      for (int r = 0; r < kGemvRows; ++r) {
        w[load][r] = LoadStreamed(rows[r] + int64_t{chunk + ahead(load)} * kChunkElements);
      }
    }
#pragma unroll
    for (int load = 0; load < kCount; ++load) {
      const int valid = kWhole ? kChunkElements : end.ElementsOf(chunk + 32 * load);
      Chunk values[kVectors];
      x.Load(values, x_chunk + ahead(load), valid);
#pragma unroll
      for (int r = 0; r < kGemvRows; ++r) {
        CutOff(w[load][r], valid);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = Unpack<T>(w[load][r].words[i]);
#pragma unroll
          for (int v = 0; v < kVectors; ++v) {
            const float2 value = Unpack<T>(values[v].words[i]);
            sums[r][v] = fmaf(pair.x, value.x, sums[r][v]);
            sums[r][v] = fmaf(pair.y, value.y, sums[r][v]);
          }
        }
      }
    }
  }

  // Walks the chunks from `first` to before `last` in turns of all warps that share the rows.
  __device__ static void MultiplyRange(Sums& sums, const T* const (&rows)[kGemvRows],
                                       const Vectors<T, kVectors, true>& x, int first, int last,
                                       int part, int parts, KEnd end) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int batch = first + part * kBatch;
#pragma unroll 1
    for (; batch + kBatch <= min(last, end.whole); batch += parts * kBatch) {
      Multiply<true, kLoads>(sums, rows, x, batch + lane, batch + lane - first, end);
    }
    // The one that the end cuts off, of which there may be little.
    const int rest_end = min(batch + kBatch, last);
#pragma unroll 1
    for (int rest = batch; rest < rest_end; rest += 32 * kRestLoads) {
      Multiply<false, kRestLoads>(sums, rows, x, rest + lane, rest + lane - first, end);
    }
  }

  template <bool kVectorsKContiguous>
  __device__ static void Accumulate(Shared& shared, const GemvParams& p, const T* matrix,
                                    const Vectors<T, kVectors, kVectorsKContiguous>& vectors,
                                    int first_line) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int part = warp % p.warps_per_line, parts = p.warps_per_line;
    const T* rows[kGemvRows];
#pragma unroll
    for (int r = 0; r < kGemvRows; ++r) {  // the last row again beyond the last
      const int ahead = min(warp / parts * kGemvRows + r, p.lines - 1 - first_line);
      rows[r] = matrix + (int64_t{first_line} + ahead) * p.matrix_ld;
    }
    const KEnd end(p.gemm.k);
    Sums sums = {};
    if constexpr (kVectorsKContiguous) {
      MultiplyRange(sums, rows, vectors, 0, end.chunks(), part, parts, end);
    } else {
      using Turned = TurnedVectors<T, kVectors>;
      __shared__ __align__(16) typename Turned::Memory turned;
      const Vectors<T, kVectors, true> x = {reinterpret_cast<const T*>(turned), Turned::kElements,
                                            kVectors};
#pragma unroll 1
      for (int first = 0; first < end.chunks(); first += Turned::kChunks) {
        Turned::Turn(turned, vectors, first, p.gemm.k);
        const int last = min(first + Turned::kChunks, end.chunks());
        MultiplyRange(sums, rows, x, first, last, part, parts, end);
      }
    }
#pragma unroll
    for (int r = 0; r < kGemvRows; ++r) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) {
          sums[r][v] += __shfl_xor_sync(0xffffffff, sums[r][v], distance);
        }
        if (lane == 0) shared[warp][r][v] = sums[r][v];
      }
    }
  }

  __device__ static float Total(const Shared& shared, const GemvParams& p, int line, int vector) {
    const int first = line / kGemvRows * p.warps_per_line;
    float total = 0.0F;
    for (int part = 0; part < p.warps_per_line; ++part) {
      total += shared[first + part][line % kGemvRows][vector];
    }
    return total;
  }
};

// K across the rows of the matrix.
template <typename T, int kVectors>
struct GemvAcrossRows {
  static_assert(kGemvColumns == kChunkElements);
  using Sums = float[kVectors][kGemvColumns];
  using Shared = float[kGemvWarps][kVectors][kMostLanesAcross * kGemvColumns];

  // Adds the products of 8 rows, of which `valid` exist. `matrix` is at this thread's columns.
  template <bool kVectorsKContiguous>
  __device__ static void Multiply(Sums& sums, const T* matrix, int64_t ld,
                                  const Vectors<T, kVectors, kVectorsKContiguous>& vectors,
                                  int chunk, int valid) {
    const T* const first = matrix + int64_t{chunk} * kChunkElements * ld;
    Chunk w[kChunkElements];
#pragma unroll
    for (int k = 0; k < kChunkElements; ++k) {
      w[k] = LoadStreamed(first + min(k, valid - 1) * ld);
      if (k >= valid) w[k] = {};
    }
    Chunk values[kVectors];
    vectors.Load(values, chunk, valid);
#pragma unroll
    for (int k = 0; k < kChunkElements; ++k) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const float2 values_of_two = Unpack<T>(values[v].words[k / 2]);
        const float value = k % 2 == 0 ? values_of_two.x : values_of_two.y;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = Unpack<T>(w[k].words[i]);
          sums[v][2 * i] = fmaf(pair.x, value, sums[v][2 * i]);
          sums[v][2 * i + 1] = fmaf(pair.y, value, sums[v][2 * i + 1]);
        }
      }
    }
  }

  template <bool kVectorsKContiguous>
  __device__ static void Accumulate(Shared& shared, const GemvParams& p, const T* matrix,
                                    const Vectors<T, kVectors, kVectorsKContiguous>& vectors,
                                    int first_line) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int across = static_cast<int>(threadIdx.x) % p.lanes_across;
    // The last columns again beyond the last.
    const int ahead = min(across, (p.lines - 1 - first_line) / kGemvColumns) * kGemvColumns;
    const T* const columns = matrix + first_line + ahead;
    const KEnd end(p.gemm.k);
    Sums sums = {};
    int chunk = static_cast<int>(threadIdx.x) / p.lanes_across;
#pragma unroll 1
    for (; chunk < end.whole; chunk += kGemvThreads / p.lanes_across) {
      Multiply(sums, columns, p.matrix_ld, vectors, chunk, kChunkElements);
    }
    if (chunk == end.whole && end.rest > 0) {
      Multiply(sums, columns, p.matrix_ld, vectors, chunk, end.rest);
    }
#pragma unroll 1
    for (int distance = 16; distance >= p.lanes_across; distance /= 2) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int i = 0; i < kGemvColumns; ++i) {
          sums[v][i] += __shfl_xor_sync(0xffffffff, sums[v][i], distance);
        }
      }
    }
    if (lane >= p.lanes_across) return;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kGemvColumns; ++i) {
        shared[warp][v][across * kGemvColumns + i] = sums[v][i];
      }
    }
  }

  __device__ static float Total(const Shared& shared, const GemvParams&, int line, int vector) {
    float total = 0.0F;
#pragma unroll
    for (int warp = 0; warp < kGemvWarps; ++warp) total += shared[warp][vector][line];
    return total;
  }
};

// Grid: x = blocks of one product, z = products (walked when there are more than z may be).
template <typename T, int kVectors, bool kMatrixKContiguous, bool kVectorsKContiguous>
__global__ void __launch_bounds__(kGemvThreads, GemvBlocksPerSm(kVectors, kMatrixKContiguous,
                                                                kVectorsKContiguous))
    Gemv(const __grid_constant__ GemvParams p) {
  using Side = std::conditional_t<kMatrixKContiguous, GemvAlongRows<T, kVectors>,
                                  GemvAcrossRows<T, kVectors>>;
  __shared__ typename Side::Shared shared;
  const int first_line = static_cast<int>(blockIdx.x) * p.lines_of_block;
  const int lines = min(p.lines_of_block, p.lines - first_line);
#pragma unroll 1
  for (int batch = blockIdx.z; batch < p.gemm.batch; batch += gridDim.z) {
    const T* const matrix = static_cast<const T*>(p.matrix) + batch * p.matrix_stride;
    const Vectors<T, kVectors, kVectorsKContiguous> vectors = {
        static_cast<const T*>(p.vectors) + batch * p.vectors_stride, p.vectors_ld, p.count};
    Side::Accumulate(shared, p, matrix, vectors, first_line);
    __syncthreads();
#pragma unroll 1
    for (int item = threadIdx.x; item < lines * p.count; item += kGemvThreads) {
      const int vector = item / lines, line = item % lines;
      const int row = p.vectors_are_rows ? vector : first_line + line;
      const int col = p.vectors_are_rows ? first_line + line : vector;
      float x[1] = {Side::Total(shared, p, line, vector)};
      if (p.gemm.f32_result) {
        FinishRun<float>(p.gemm, batch, row, col, x);
      } else {
        FinishRun<T>(p.gemm, batch, row, col, x);
      }
    }
    __syncthreads();  // the next product's sums take the place of these
  }
}

}  // namespace gemmd
