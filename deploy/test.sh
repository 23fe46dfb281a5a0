#!/usr/bin/env bash
# Installs what is missing, builds everything that this machine can build, runs every test that it
# can run, and says what it left out and why. Ends with ctest's own closing lines.
#   deploy/test.sh [--no-install] [--build-only] [-- CTEST_ARGUMENT...]
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

install=1
build_only=0

usage() { sed -n '2,4s/^# \?//p' "$0"; }

while (($#)); do
  case $1 in
    --no-install) install=0 ;;
    --build-only) build_only=1 ;;
    --) shift && break ;;
    -h | --help) usage && exit 0 ;;
    *) die "unknown argument '$1'; see $0 --help" ;;
  esac
  shift
done

has_gpu() { have nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

cache_has() { grep -q "$1" "$root_dir/build/release/CMakeCache.txt"; }

# Prints one line for each part that cannot run here.
name_skipped() {
  if ! cache_has '^CMAKE_CUDA_COMPILER:.*nvcc'; then
    say "skipped: the CUDA backend's build and tests: no nvcc on this machine"
  elif ! has_gpu; then
    say "skipped: tests with label gpu: no usable NVIDIA GPU (the CUDA code was compiled)"
  fi
  have promtool || say "skipped: promtool check metrics: no promtool (package prometheus)"
}

if ((install)); then step "packages" "$root_dir/deploy/packages.sh" build test; fi
step "build" build_release
((!build_only)) || exit 0

name_skipped
# Test programs that share one GPU would contend for its memory, so there they run one by one.
declare -a select=()
has_gpu || select=(-LE '^gpu$' -j "$(build_jobs)")
exec ctest --test-dir "$root_dir/build/release" --output-on-failure --no-tests=error \
  "${select[@]}" "$@"
