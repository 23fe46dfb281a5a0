#!/usr/bin/env bash
# clang-tidy, with the checks of .clang-tidy and clang's thread-safety analysis, over every C++ file
# of our own that a configured and built tree compiles. Without FILE... they are checked many at a
# time, so that the headers that they share count once.
#   deploy/ci/tidy.sh [--self-test | BUILD_DIR [FILE...]]     (default: build/release, all files)
set -euo pipefail
# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || die "no clang-tidy-14"
[[ $("$tidy" --version) == *"version 14."* ]] || die "$tidy is not version 14"

# check DATABASE_DIR FILE: prints what there is to say.
check() {
  "$tidy" -p "$1" --config-file="$root_dir/.clang-tidy" --quiet --extra-arg=-Wthread-safety \
    --extra-arg=-Wno-unknown-warning-option "$2" 2>/dev/null
}

# check_unity DIR FILE PART...: a line of unity_files.py. Where FILE does not compile, names of its
# parts may clash, so each is checked on its own.
check_unity() {
  local folder=$1 file=$2 found part status=0
  shift 2
  found=$(check "$folder" "$folder/$file") || status=$?
  if (($#)) && grep -q '\[clang-diagnostic-error\]' <<<"$found"; then
    warn "${file%.cc} is checked in $# parts: $(grep -m1 ' error: ' <<<"$found")"
    status=0
    found=$(for part in "$@"; do check "$folder" "$folder/$part" || exit_status=1; done
      exit "${exit_status:-0}") || status=$?
  fi
  [[ -z $found ]] || say "$found"
  return "$status"
}

# in_parallel WORD...: runs this script with the words and those of each line of standard input.
in_parallel() {
  local log status=0
  log=$(mktemp)
  xargs -L 1 -P "$(build_jobs)" "${BASH_SOURCE[0]}" "$@" >"$log" || status=$?
  # A finding in a header comes once for each file that includes it.
  awk '/^\// {seen_before = seen[$0]++} !seen_before' "$log"
  rm -f "$log"
  return "$status"
}

check_all() {
  local build_dir=$1 folder status=0
  folder=$(mktemp -d)
  "$root_dir/deploy/ci/unity_files.py" "$build_dir" "$folder" >"$folder/list"
  in_parallel --unity "$folder" <"$folder/list" || status=$?
  rm -rf "$folder"
  return "$status"
}

# A fault for each group of checks, each in a source of its own. What clang says of a file's own
# names alone is left to GCC: unused variables and constants of a namespace.
self_test() {
  local -A fault=(
    [bugprone-use-after-move]='std::size_t Twice(std::string text) {
      const std::string other = std::move(text); return other.size() + text.size(); }'
    [performance-unnecessary-value-param]='std::size_t Size(const std::string text) { return text.size(); }'
    [performance-for-range-copy]='std::size_t Sum(const std::vector<std::string>& all) {
      std::size_t sum = 0; for (const auto text : all) sum += text.size(); return sum; }'
    [concurrency-thread-canceltype-asynchronous]='void Cancel() {
      pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr); }'
    [readability-identifier-naming]='int wrong_name() { return 1; }'
    [clang-diagnostic-thread-safety-analysis]='struct __attribute__((capability("mutex"))) Lock {};
      struct Held { Lock mu; int value __attribute__((guarded_by(mu))); };
      int Read(const Held& held) { return held.value; }'
    [clang-diagnostic-unused-variable]='void Local() { int unused; }'
    [clang-diagnostic-unused-function]='static int Nobody() { return 1; }'
    [bugprone-macro-repeated-side-effects]='
#define TWICE(x) ((x) < 0 ? 0 : (x))
      int Count(int n) { return TWICE(++n); }'
  )
  local folder
  folder=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder's name is wanted as it is now
  trap "rm -rf '$folder'" EXIT
  mkdir -p "$folder"/{deploy/ci,kernels}
  cp "$root_dir/.clang-tidy" "$folder"
  cp "$root_dir/deploy/lib.sh" "$folder/deploy"
  cp "$root_dir"/deploy/ci/{tidy.sh,unity_files.py} "$folder/deploy/ci"

  local name separator='[' number=0
  plant() {  # NAME CODE
    number=$((number + 1))
    printf '%s\n' '#include <pthread.h>' '#include <string>' '#include <utility>' '#include <vector>' \
      'namespace gemmd {' "$2" '}' >"$folder/kernels/$1.cc"
    printf '%s{"directory": "%s", "file": "%s",\n "command": "c++ -std=c++20 -Wall -o %s -c %s"}' \
      "$separator" "$folder" "$folder/kernels/$1.cc" "kernels/CMakeFiles/target$((number / 4)).dir/$1.o" \
      "kernels/$1.cc" >>"$folder/compile_commands.json"
    separator=','
  }
  for name in "${!fault[@]}"; do plant "$name" "${fault[$name]}"; done
  # Names that clash must hide nothing.
  plant clash 'namespace { int Twice(int n) { return n + n; } }  int wrong_too() { return Twice(1); }'
  plant clash_too 'namespace { int Twice(int n) { return n + n; } }  int wrong_yet() { return Twice(2); }'
  printf ']\n' >>"$folder/compile_commands.json"
  ! "$folder/deploy/ci/tidy.sh" "$folder" >"$folder/found" 2>&1 || die "self-test: the faults passed"
  for name in "${!fault[@]}"; do
    grep -q "/$name\.cc:.*\[$name" "$folder/found" ||
      die "self-test: $name was not found in $(cat "$folder/found")"
  done
  for name in wrong_too wrong_yet; do
    grep -q "'$name' \[readability-identifier-naming" "$folder/found" || die "self-test: a clash hid $name"
  done
  say "tidy: ${#fault[@]} kinds of fault are found, and those of files that clash"
}

main() {
  if [[ ${1:-} == --self-test ]]; then
    self_test
    return
  fi
  local build_dir=${1:-$root_dir/build/release}
  [[ -e $build_dir/compile_commands.json ]] || die "$build_dir is not configured"
  shift || true
  if (($#)); then
    (cd "$root_dir" && printf '%s\n' "$@" | in_parallel --file "$build_dir") || die "see above"
  else
    check_all "$build_dir" || die "see the findings above"
  fi
  say "tidy: clean"
}

case ${1:-} in
  --unity) shift && check_unity "$@" ;;
  --file) shift && check "$@" ;;
  *) main "$@" ;;
esac
