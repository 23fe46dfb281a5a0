// From a plan to a kernel on a stream.
#pragma once

#include <map>
#include <string>

#include <cuda_runtime_api.h>

#include "kernels/core/gemm_types.h"
#include "kernels/core/status.h"
#include "kernels/cuda/gemm_params.h"
#include "kernels/plan/plan.h"

namespace gemmd {

// The entry point of table row kRow for operands of `type` stored as the ops say; null when the row
// does not take the type. Specialised once per row in kernels/cuda/instances: a row without its
// instance does not link.
template <int kRow>
const void* KernelEntry(DType type, Op op_a, Op op_b);

// Raises the shared-memory limit of every kernel on the current device, and loads them.
// UNIMPLEMENTED when this build has no code for the device. Once per device, before the first
// Launch.
Status PrepareKernels();

// The mangled name of every function that Launch may launch on the current device -> its kernel, as
// of FunctionSamples. Once the kernels are prepared.
StatusOr<std::map<std::string, int>> KernelFunctions();

// Enqueues `plan` for `problem`. `params` holds pointers, leading dimensions and strides; the rest
// of it is filled here. Does not wait. Precondition: the plan came from a Planner of this device
// and plan.row >= 0.
Status Launch(const GemmProblem& problem, const Plan& plan, GemmParams params, cudaStream_t stream);

// As Launch, of `entry`, which takes what the kernels of the plan's row take and is none of theirs;
// it is prepared here, each time.
Status LaunchEntry(const void* entry, const GemmProblem& problem, const Plan& plan,
                   GemmParams params, cudaStream_t stream);

// Pairs of blocks (clusters of 2) that the current device, of compute capability 9.0, holds at once
// where each block needs an SM of its own.
StatusOr<int> ResidentPairs();

// Registers per thread, spilled bytes and so on of a row's kernel, for tests.
StatusOr<cudaFuncAttributes> KernelAttributes(int row, DType type, Op op_a, Op op_b);
// The driver's own figure for resident blocks per SM.
StatusOr<int> DriverResidentBlocks(int row, int stages, DType type, Op op_a, Op op_b);

}  // namespace gemmd
