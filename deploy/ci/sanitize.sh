#!/usr/bin/env bash
# Builds with sanitizers and runs every test that needs no GPU.
#   deploy/ci/sanitize.sh asan|tsan [-- CMAKE_ARGUMENT...]
set -euo pipefail
# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

preset=${1:-}
[[ $preset == asan || $preset == tsan ]] || die "say asan or tsan"
shift
[[ ${1:-} != -- ]] || shift

build_dir=$root_dir/build/$preset
cmake -S "$root_dir" --preset "$preset" "$@"
cmake --build "$build_dir" -j "$(build_jobs)"

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
# What the distribution's libraries copy is left out: reports of it are suppressed anyway, and finding
# them makes a test with many callers run a hundred times as long.
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:ignore_noninstrumented_modules=1
export TSAN_OPTIONS=$TSAN_OPTIONS:suppressions=$root_dir/tests/tsan.supp

# The thread sanitizer of this compiler cannot place its shadow memory under the widest address
# randomisation that newer kernels use.
declare -a fixed_addresses=()
if setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi
# Threads meet in a backend's lanes, whatever they compute: the arithmetic of the other suites is the
# address sanitizer's, and OpenBLAS is not instrumented. Programs without threads are not even built
# for the thread sanitizer (SINGLE_THREADED in deploy/cmake/GemmdTargets.cmake).
declare -a select=()
[[ $preset != tsan ]] || select=(-E '^Cpu/(Row|Vector|Product|Float|Int8)Conformance\.')

"${fixed_addresses[@]}" ctest --test-dir "$build_dir" --output-on-failure --no-tests=error \
  -LE '^(gpu|bench)$' "${select[@]}" -j "$(build_jobs)"
