// A test that needs a device: skipped, with the reason, where none is usable.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kernels/core/device_traits.h"
#include "kernels/cuda/device_probe.h"
#include "kernels/cuda/launcher.h"

namespace gemmd {

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const StatusOr<DeviceTraits> traits = ProbeCudaDevice(0);
    if (!traits.ok()) GTEST_SKIP() << traits.status().ToString();
    traits_ = *traits;
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    const Status prepared = PrepareKernels();
    ASSERT_TRUE(prepared.ok()) << prepared.ToString();
  }

  DeviceTraits traits_;
};

}  // namespace gemmd
