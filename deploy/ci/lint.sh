#!/usr/bin/env bash
# Checks of the text: format, lengths, scripts, the metrics that README.md names, the documents'
# tables of measurements, the dashboards' JSON. No build.
#   deploy/ci/lint.sh [--self-test]     with --self-test: proves that each check can fail
set -euo pipefail
# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

readonly max_lines=500
failures=0

fail() {
  warn "$*"
  failures=$((failures + 1))
}

# Formatting differs between major versions; 14 is the one that decides.
check_format() {
  local format
  format=$(command -v clang-format-14 || command -v clang-format) || die "no clang-format-14"
  [[ $("$format" --version) == *"version 14."* ]] || die "$format is not version 14"
  local -a files
  mapfile -d '' files < <(source_files cc h cu cuh)
  ((${#files[@]} == 0)) || (cd "$root_dir" && "$format" --dry-run -Werror "${files[@]}") ||
    fail "format: run $format -i on the files above"
}

check_lengths() {
  local file lines
  while IFS= read -r -d '' file; do
    lines=$(wc -l <"$root_dir/$file")
    ((lines <= max_lines)) || fail "$file: $lines lines; the limit is $max_lines"
  done < <(source_files cc h cu cuh proto py sh)
}

check_shell() {
  have shellcheck || die "no shellcheck"
  local -a files
  mapfile -d '' files < <(source_files sh)
  [[ ! -e $root_dir/.ci/run ]] || files+=(.ci/run)
  ((${#files[@]} == 0)) || (cd "$root_dir" && shellcheck -x -P SCRIPTDIR "${files[@]}") ||
    fail "shellcheck: see above"
}

# Sources are listed, so that a build sees a file that comes or goes.
check_no_glob() {
  local -a files
  mapfile -d '' files < <(source_files txt cmake)
  ((${#files[@]} == 0)) || ! (cd "$root_dir" && grep -nE '^\s*file\s*\(\s*GLOB' "${files[@]}") ||
    fail "file(GLOB): list the sources"
}

# README.md names the metrics that tests/golden/metrics.txt holds, and no others.
check_metrics_table() {
  local golden=$root_dir/tests/golden/metrics.txt difference
  [[ -e $golden ]] || return 0
  difference=$(diff <(awk '{print $1}' "$golden" | sort -u) \
    <(grep '^| .gemmd_' "$root_dir/README.md" | grep -oE 'gemmd_[a-z_]+' | sort -u)) ||
    fail "README.md's metrics (>) differ from $golden (<):"$'\n'"$difference"
}

# Every figure in the documents' tables is that of a committed result.
check_tables() {
  compgen -G "$root_dir/tests/bench/results/*.jsonl" >/dev/null || return 0
  python3 "$root_dir/tests/bench/report.py" --check || fail "tables: see above"
}

# The dashboards are as their source would write them.
check_dashboards() {
  [[ -e $root_dir/deploy/grafana/dashboards.py ]] || return 0
  python3 -B "$root_dir/deploy/grafana/dashboards.py" --check || fail "dashboards: see above"
}

check_all() {
  failures=0
  check_format
  check_lengths
  check_shell
  check_no_glob
  check_metrics_table
  check_tables
  check_dashboards
}

self_test() {
  local result='{"bench": "probe-cost", "shape": "a", "dtype": "a", "layout": "a", "m": 1, "n": 1, "k": 1,'
  result+=' "kernel": "a", "stages": 1, "off_us": 1, "on_us": 1, "ratio": 1,'
  result+=' "gpu": "a", "date": "a", "commit": "a"}'
  local -A breach=(
    [a.cc]=$'int  f( );\n'
    [long.h]=$(printf 'int a;%.0s\n' {1..501})$'\n'
    [a.sh]=$'#!/bin/bash\necho $1\n'
    [tests/golden/metrics.txt]=$'gemmd_unnamed gauge\n'
    [CMakeLists.txt]=$'file(GLOB sources *.cc)\n'
    [tests/bench/results/a.jsonl]=$result
    [deploy/grafana/dashboards/a.json]='{}'
  )
  local name folder
  folder=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder's name is wanted as it is now
  trap "rm -rf '$folder'" EXIT
  cp "$root_dir/.clang-format" "$folder"
  mkdir -p "$folder"/{kernels,server,tests/{golden,bench/results},deploy}
  cp "$root_dir/tests/bench/report.py" "$folder/tests/bench"
  cp -r "$root_dir/deploy/grafana" "$folder/deploy"
  touch "$folder"/{kernels,server}/README.md
  printf '<!-- table: probe-cost -->\n<!-- end -->\n' >"$folder/README.md"
  root_dir=$folder
  check_all
  ((failures == 0)) || die "self-test: an empty tree was refused"
  for name in "${!breach[@]}"; do
    printf '%s' "${breach[$name]}" >"$folder/$name"
    check_all >/dev/null 2>&1
    ((failures == 1)) || die "self-test: $failures failures from $name, want 1"
    rm "$folder/$name"
  done
  say "lint: ${#breach[@]} breaches are caught"
}

case ${1:-} in
  --self-test) self_test ;;
  '')
    check_all
    ((failures == 0)) || die "$failures check(s) failed"
    say "lint: format, lengths, scripts and CMake files are clean"
    ;;
  *) die "unknown argument '$1'" ;;
esac
