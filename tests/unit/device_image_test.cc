#include "kernels/cuda/device_image.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/image_params.h"
#include "kernels/plan/stall_record.h"

namespace gemmd {
namespace {

GemmProblem ImageProblem(int64_t m, int64_t n, int64_t k, int64_t batch, DType type) {
  GemmProblem p;
  p.m = m, p.n = n, p.k = k, p.batch = batch;
  p.type_a = p.type_b = p.type_d = type;
  return WithPackedLayouts(p);
}

const std::byte* Bytes(const std::vector<uint16_t>& v) {
  return reinterpret_cast<const std::byte*>(v.data());
}

TEST(DeviceImageTest, RowsStartOnSixteenBytesAndOnMoreWhereThatAddsASixteenthAtMost) {
  const DeviceImage narrow = *ImageOf(ImageProblem(3, 5, 7, 1, DType::kBF16));
  EXPECT_EQ(narrow.a.ld, 8);
  EXPECT_EQ(narrow.b.ld, 8);
  const DeviceImage wide = *ImageOf(ImageProblem(3, 4095, 4097, 1, DType::kBF16));
  EXPECT_EQ(wide.b.ld, 4096);
  EXPECT_EQ(wide.a.ld, 4160) << "8194 bytes become 65 lines of 128";
  const DeviceImage limit = *ImageOf(ImageProblem(3, 964, 963, 1, DType::kBF16));
  EXPECT_EQ(limit.b.ld, 1024) << "1928 bytes become 2048: 120 more, at most a sixteenth";
  EXPECT_EQ(limit.a.ld, 992) << "1926 bytes would need 122 more, and become 31 times 64";
  const DeviceImage short_rows = *ImageOf(ImageProblem(3, 265, 137, 1, DType::kBF16));
  EXPECT_EQ(short_rows.b.ld, 272) << "530 bytes become 17 sectors of 32";
  EXPECT_EQ(short_rows.a.ld, 144) << "274 bytes become 288 for 9 sectors: 14 more";
  EXPECT_EQ(ImageOf(ImageProblem(3, 1, 100, 1, DType::kBF16))->a.ld, 104)
      << "24 more for 7 sectors";
}

TEST(DeviceImageTest, PartsFollowOneAnotherWithoutOverlap) {
  GemmProblem p = ImageProblem(33, 17, 65, 3, DType::kF16);
  p.beta = 1.0;
  p.bias = BiasAxis::kPerRow;
  const DeviceImage image = *ImageOf(p);
  const auto end = [](const ImageMatrix& m, int64_t rows) {
    return m.offset + rows * m.ld * m.matrices * 2;
  };
  EXPECT_EQ(image.a.offset, 0);
  EXPECT_GE(image.b.offset, end(image.a, 33));
  EXPECT_GE(image.c.offset, end(image.b, 65));
  EXPECT_GE(image.bias_offset, end(image.c, 33));
  EXPECT_GE(image.counters_offset, image.bias_offset + 33 * 2);
  EXPECT_GE(image.d.offset, image.counters_offset + kStallBytes);
  EXPECT_GE(image.bytes, end(image.d, 33));
  EXPECT_EQ(image.upload_bytes(), image.d.offset);
}

TEST(DeviceImageTest, HoldsNothingThatTheProblemDoesNotRead) {
  GemmProblem p = ImageProblem(10, 10, 10, 1, DType::kF32);
  p.alpha = 0.0;
  const DeviceImage image = *ImageOf(p);
  EXPECT_EQ(image.a.matrices, 0);
  EXPECT_EQ(image.b.matrices, 0);
  EXPECT_EQ(image.c.matrices, 0);
  EXPECT_EQ(image.d.matrices, 1);
}

TEST(DeviceImageTest, ABroadcastOperandIsHeldOnce) {
  GemmProblem p = ImageProblem(10, 10, 10, 1000, DType::kF32);
  p.b.batch_stride = 0;
  const DeviceImage image = *ImageOf(p);
  EXPECT_EQ(image.a.matrices, 1000);
  EXPECT_EQ(image.b.matrices, 1);
  EXPECT_EQ(image.b.batch_stride, 0);
}

TEST(DeviceImageTest, PaddingThatPassesSixtyThreeBitsIsRefused) {
  // 2^31 - 1 rows of one element, padded eightfold, times 2^28 products.
  GemmProblem p = ImageProblem(kMaxExtent, 1, 1, int64_t{1} << 28, DType::kF16);
  ASSERT_TRUE(ValidateProblem(p).ok());
  EXPECT_EQ(ImageOf(p).status().code(), StatusCode::kResourceExhausted);
}

TEST(DeviceImageTest, OperandsGoInAndTheResultComesOutWithoutTheirPadding) {
  GemmProblem p = ImageProblem(3, 5, 2, 2, DType::kF16);
  p.a.ld = 4;  // two padding elements a row
  p.a.batch_stride = 20;
  const DeviceImage image = *ImageOf(p);
  std::vector<uint16_t> a(20 + 2 * 4 + 2, 0xffff), b(2 * 2 * 5), d(2 * 3 * 5, 0xdead);
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t col = 0; col < 2; ++col) {
        a[static_cast<size_t>(i * 20 + row * 4 + col)] =
            static_cast<uint16_t>(100 * i + 10 * row + col);
      }
    }
  }
  std::vector<uint16_t> memory(static_cast<size_t>(image.bytes / 2), 0xeeee);
  auto* base = reinterpret_cast<std::byte*>(memory.data());
  const HostOperands operands{Bytes(a), Bytes(b), nullptr, nullptr,
                              reinterpret_cast<std::byte*>(d.data())};
  FillImage(p, operands, image, base);
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t row = 0; row < 3; ++row) {
      const int64_t at = image.a.offset / 2 + i * image.a.batch_stride + row * image.a.ld;
      EXPECT_EQ(memory[static_cast<size_t>(at)], 100 * i + 10 * row);
      EXPECT_EQ(memory[static_cast<size_t>(at + 1)], 100 * i + 10 * row + 1);
      EXPECT_EQ(memory[static_cast<size_t>(at + 2)], 0xeeee) << "the caller's padding stays out";
    }
  }
  for (int64_t byte = 0; byte < kStallBytes; ++byte) {
    EXPECT_EQ(base[image.counters_offset + byte], std::byte{0});
  }
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t col = 0; col < 5; ++col) {
        memory[static_cast<size_t>(image.d.offset / 2 + i * image.d.batch_stride +
                                   row * image.d.ld + col)] =
            static_cast<uint16_t>(i * 15 + row * 5 + col);
      }
    }
  }
  ReadResult(p, image, base, operands);
  for (size_t i = 0; i < d.size(); ++i) EXPECT_EQ(d[i], i);
}

TEST(StallRecordTest, MemoryThatNoKernelWroteIsDropped) {
  GemmProblem p = ImageProblem(64, 64, 128, 1, DType::kBF16);
  p.alpha = 0;  // reads neither A nor B
  const DeviceImage image = *ImageOf(p);
  std::vector<std::byte> memory(static_cast<size_t>(image.bytes), std::byte{0xee});
  std::byte* const record = memory.data() + image.counters_offset;
  const Plan plan{.row = RowByName("tma_wgmma_64x64x128"), .stages = 2};
  const auto judged = [&] {
    return JudgeStalls(ReadCounters(record), p, plan, H200Traits(), Nanoseconds(10'000));
  };
  EXPECT_TRUE(judged().dropped) << "what was there before";
  FillImage(p, {}, image, memory.data());
  EXPECT_TRUE(judged().dropped) << "zeros, as the launch finds them";
  const uint64_t counted[kStallCounters] = {300, 20, 1000, 200, 1};
  std::memcpy(record, counted, sizeof(counted));
  EXPECT_TRUE(judged().measured) << "what a kernel counts";
}

TEST(StallRecordTest, IsTheSumOverItsSlots) {
  std::vector<uint64_t> memory(kStallBytes / 8);
  for (int slot = 0; slot < kStallSlots; ++slot) {
    for (int i = 0; i < kStallCounters; ++i) {
      memory[static_cast<size_t>(slot * kStallSlotStride + i)] = i == 0 ? 1U << slot : 10U * i;
    }
  }
  const StallSample sum = ReadCounters(reinterpret_cast<const std::byte*>(memory.data()));
  EXPECT_EQ(sum.wait_full, (1U << kStallSlots) - 1);
  EXPECT_EQ(sum.wait_empty, 10U * kStallSlots);
  EXPECT_EQ(sum.mainloop, 20U * kStallSlots);
  EXPECT_EQ(sum.epilogue, 30U * kStallSlots);
  EXPECT_EQ(sum.k_tiles, 40U * kStallSlots);
}

}  // namespace
}  // namespace gemmd
