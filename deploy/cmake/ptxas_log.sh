#!/bin/sh
# ptxas_log.sh COMPILER ARGUMENT... -o OBJECT: compiles, and keeps in OBJECT.ptxas what ptxas said of
# the kernels (-Xptxas=-v), for deploy/ci/ptxas_gate.py. All else is shown as ever.
object=''
previous=''
for word; do
  if [ "$previous" = -o ]; then object=$word; fi
  previous=$word
done
[ -n "$object" ] || exec "$@"
status=0
"$@" 2>"$object.ptxas" || status=$?
if [ "$status" -eq 0 ]; then
  grep -Ev '^ptxas info +: ([0-9]+ bytes gmem|Compiling|Function properties|Used |Compile time)|^    [0-9]+ bytes stack' \
    "$object.ptxas" >&2
else
  cat "$object.ptxas" >&2
fi
exit "$status"
