#!/usr/bin/env bash
# clang-tidy, with the checks of .clang-tidy and clang's thread-safety analysis, over every C++ file
# of our own that a configured and built tree compiles.
#   deploy/ci/tidy.sh [--self-test | BUILD_DIR [FILE...]]     (default: build/release, all files)
set -euo pipefail
# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || die "no clang-tidy-14"
[[ $("$tidy" --version) == *"version 14."* ]] || die "$tidy is not version 14"

# Sources in the compile commands that are ours: not generated, not compiled by nvcc.
own_files() {
  sed -n "s|^ *\"file\": \"$root_dir/\(.*\.cc\)\",\?\$|\1|p" "$1/compile_commands.json" |
    grep -E '^(kernels|proto|server|client|tests)/' | sort -u
}

run() {
  local build_dir=$1
  shift
  local log status=0
  log=$(mktemp)
  (cd "$root_dir" && printf '%s\0' "$@" | xargs -0 -n 1 -P "$(build_jobs)" \
    "$tidy" -p "$build_dir" --quiet --extra-arg=-Wthread-safety \
    --extra-arg=-Wno-unknown-warning-option) >"$log" 2>/dev/null || status=$?
  # A finding in a header comes once for each file that includes it.
  awk '/^\// {seen_before = seen[$0]++} !seen_before' "$log"
  rm -f "$log"
  return "$status"
}

self_test() {
  local folder
  folder=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder's name is wanted as it is now
  trap "rm -rf '$folder'" EXIT
  cp "$root_dir/.clang-tidy" "$folder"
  root_dir=$folder
  mkdir "$folder/kernels"
  cat >"$folder/kernels/a.cc" <<'CODE'
#include <string>
#include <utility>
namespace gemmd {
std::size_t Twice(std::string text) {
  const std::string other = std::move(text);
  return other.size() + text.size();
}
}  // namespace gemmd
CODE
  printf '[{"directory": "%s", "command": "c++ -std=c++20 -c kernels/a.cc",\n"file": "%s"\n}]\n' \
    "$folder" "$folder/kernels/a.cc" >"$folder/compile_commands.json"
  [[ $(own_files "$folder") == kernels/a.cc ]] || die "self-test: the compile commands were not read"
  ! run "$folder" kernels/a.cc >"$folder/found" || die "self-test: a use after move passed"
  grep -q bugprone-use-after-move "$folder/found" || die "self-test: $(cat "$folder/found")"
  say "tidy: a use after move is caught"
}

main() {
  if [[ ${1:-} == --self-test ]]; then
    self_test
    return
  fi
  local build_dir=${1:-$root_dir/build/release}
  [[ -e $build_dir/compile_commands.json ]] || die "$build_dir is not configured"
  shift || true
  local -a files=("$@")
  ((${#files[@]})) || mapfile -t files < <(own_files "$build_dir")
  ((${#files[@]})) || die "no sources of ours in $build_dir/compile_commands.json"
  run "$build_dir" "${files[@]}" || die "see the findings above"
  say "tidy: ${#files[@]} files are clean"
}

main "$@"
