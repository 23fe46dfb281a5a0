#!/usr/bin/env bash
# What a host with a GPU runs from a bundle made with --label gpu: the tests of label gpu, then
# compute-sanitizer over the kernels' conformance tests, where it is on the PATH. One line a step; each
# step's output goes to OUTPUT_FOLDER/STEP.log. Exits 1 where a step failed.
#   deploy/ci/gpu_run.sh OUTPUT_FOLDER
set -uo pipefail
# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

readonly limit_seconds=600  # a step
readonly found=9            # compute-sanitizer's exit status where it found something

if (($# != 1)) || [[ $1 == -* ]]; then die "name one output folder, as the head of $0 says"; fi
mkdir -p "$1" || die "cannot make '$1'"
output=$(cd "$1" && pwd)
failed=0

# check STEP COMMAND...: runs it and says how it went. A program all of whose tests were skipped, or
# were not in the filter, has shown nothing: that is a failure here.
check() {
  local name=$1 start=$EPOCHREALTIME status=0 verdict=passed
  local log=$output/$1.log
  shift
  timeout --kill-after=10 "$limit_seconds" "$@" >"$log" 2>&1 </dev/null || status=$?
  case $status in
    0) ! grep -q 'PASSED.* 0 tests' "$log" || verdict="FAILED: a program ran no test" ;;
    124 | 137) verdict="FAILED: not through after $limit_seconds s" ;;
    *) verdict="FAILED (status $status)" ;;
  esac
  say "$name: $verdict, $(seconds_since "$start") s"
  [[ $verdict != passed ]] || return 0
  failed=$((failed + 1))
  tail -n 30 "$log" >&2
}

# sanitize TOOL FILTER [OPTION...]: one tool of compute-sanitizer over the conformance tests that the filter
# names; sanitize_lab TOOL [OPTION...]: over the laboratory's ring with both of its edges, and traces.
sanitize() {
  check "$1" compute-sanitizer --tool "$1" --error-exitcode "$found" "${@:3}" \
    "$root_dir/bin/cuda_conformance_test" --gtest_brief=1 --gtest_filter="$2"
}
sanitize_lab() {
  check "$1_lab" compute-sanitizer --tool "$1" --error-exitcode "$found" "${@:2}" \
    "$root_dir/bin/lab_device_test" --gtest_brief=1 --gtest_filter='LabTest.StepsBeyond*:LabTest.Moments*:LabTest.AProduction*'
}

check tests "$root_dir/deploy/run_tests.sh" --label gpu
if have compute-sanitizer; then
  sanitize memcheck 'Cuda/RowConformance.*:Cuda/VectorConformance.Strides*'
  # What these two look for is the ring's use of shared memory: every row and stage count, few products;
  # parts and pairs, whose blocks meet, at one depth.
  readonly rings='Cuda/RowConformance.Strides*:Cuda/VectorConformance.Strides*'
  readonly meetings='Cuda/RowConformance.AddsUp*_s3:Cuda/RowConformance.SharesPanels*_s3'
  sanitize racecheck "$rings:$meetings:Cuda/RowConformance.SpreadsNaN*"
  # Of a block; by itself it makes room for so many that a launch of the deeper rings is not followed.
  sanitize synccheck "$rings:$meetings:Cuda/RowConformance.HoldsAroundTheEdges*" --num-cuda-barriers 64
  # No racecheck of it: the arrivals that cp.async triggers at an mbarrier order nothing for that tool.
  sanitize_lab memcheck
  sanitize_lab synccheck --num-cuda-barriers 64
  # It is the slowest, and does not see what the copy engine writes: parts, which a kernel adds up, it would
  # name. The copy to the host reads along what pads D's rows, which no kernel has to write.
  sanitize initcheck 'Cuda/RowConformance.Strides*_s3:Cuda/VectorConformance.Strides*' \
    --check-api-memory-access no
else
  for tool in memcheck racecheck synccheck initcheck; do say "$tool: skipped, no compute-sanitizer on the PATH"; done
fi
((failed == 0)) || die "$failed step(s) failed; the logs are in $output"
