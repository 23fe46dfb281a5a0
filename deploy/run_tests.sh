#!/usr/bin/env bash
# Runs a bundle's test programs, for hosts that have no ctest.
#   deploy/run_tests.sh [--label LABEL] [GOOGLETEST_ARGUMENT...]   (default: every program)
set -uo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

label=''
if [[ ${1:-} == --label ]]; then
  label=${2:?--label needs a value}
  shift 2
fi
[[ -e $root_dir/tests.txt ]] || die "no tests.txt: this is not a bundle made with --tests"

passed=0
failed=0
while read -r name labels; do
  [[ -z $label || ,$labels, == *",$label,"* ]] || continue
  say "==> $name"
  if "$root_dir/bin/$name" --gtest_brief=1 "$@" </dev/null; then
    passed=$((passed + 1))
  else
    warn "$name failed"
    failed=$((failed + 1))
  fi
done <"$root_dir/tests.txt"
((passed + failed)) || die "no test program has label '$label'"
say "$passed passed, $failed failed"
((failed == 0))
