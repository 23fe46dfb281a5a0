#!/usr/bin/env bash
# Makes a relocatable tar of a built tree: the binaries, stripped, with the shared libraries that the
# distribution supplied. It runs from any folder of an x86-64 Linux whose glibc is not older than the
# one it was built with; the GPU driver is the host's.
#   deploy/bundle.sh [--tests] [--label LABEL] [--bench] [--build-dir DIR] [OUTPUT.tar.gz]
#   --tests   with the test programs, run_tests.sh to run them by label, and ci/gpu_run.sh
#   --label   of the test programs only those with this label, such as gpu
#   --bench   with the benchmarks, which take cuBLASLt from the host, the laboratory, and measure.sh
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build_dir=$root_dir/build/release
output=$root_dir/build/gemmd.tar.gz
with_tests=0
label=''
declare -a benchmarks=()

# The C library belongs to the host, as its loader does; libcuda and libnvidia-* to the host's driver.
# The CUDA Toolkit's libraries, which only benchmarks use, are too large and stay out as well.
readonly host_libraries='^(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|anl|nsl|nss_.*|mvec|cuda|nvidia-.*|cublas.*|cudart|cupti))\.so'

usage() { sed -n '2,8s/^# \?//p' "$0"; }

while (($#)); do
  case $1 in
    --tests) with_tests=1 ;;
    --bench) benchmarks=(gemmd_bench gemmd_latency gemmd_lab) ;;
    --build-dir | --label)
      (($# >= 2)) || die "$1 needs a value"
      if [[ $1 == --label ]]; then label=$2 with_tests=1; else build_dir=$(cd "$2" && pwd); fi
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    -*) die "unknown argument '$1'; see $0 --help" ;;
    *) output=$1 ;;
  esac
  shift
done

# copy_program PROGRAM: into bin/, with the search path of its libraries beside it. An RPATH, unlike a
# RUNPATH, also serves the libraries' own libraries.
copy_program() {
  local copy=$stage/bin/${1##*/}
  strip -o "$copy" "$1"
  patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$copy"
}

# copy_libraries: what the programs in bin/ need, by the build machine's loader.
copy_libraries() {
  local name path
  while read -r name path; do
    [[ ! $name =~ $host_libraries ]] || continue
    [[ $path == /* ]] || die "a program needs $name, which is not on this machine"
    strip -o "$stage/lib/$name" "$path"
    # A library's own RUNPATH would switch the program's RPATH off for what the library needs.
    [[ -z $(patchelf --print-rpath "$stage/lib/$name") ]] ||
      patchelf --remove-rpath "$stage/lib/$name"
  done < <(for program in "$build_dir"/bin/*; do
    [[ -e $stage/bin/${program##*/} ]] && ldd "$program"
  done | awk '$2 == "=>" {print $1, $3}' | sort -u)
}

# copy_cupti: CUPTI, which a server built with CUDA looks for by name, and what CUPTI looks for; where the
# toolkit has them. Without it the server only samples no program counters.
copy_cupti() {
  local library name
  library=$(sed -n 's/^CUDA_cupti_LIBRARY:FILEPATH=//p' "$build_dir/CMakeCache.txt")
  for name in libcupti.so.13 libnvperf_host.so libnvperf_target.so; do
    if [[ -n $library && -e ${library%/*}/$name ]]; then cp -L "${library%/*}/$name" "$stage/lib/$name"; fi
  done
}

# Fails where a program would still take a library, other than the host's, from outside the bundle.
check_closed() {
  local name path
  while read -r name path; do
    [[ $name =~ $host_libraries || $path == "$stage"/* ]] || die "$name would come from '$path'"
  done < <(for program in "$stage"/bin/*; do ldd "$program"; done | awk '$2 == "=>" {print $1, $3}')
}

# Prints the programs of the tests, or of --label, with their labels: "NAME LABEL[,LABEL]...".
test_programs() {
  ctest --test-dir "$build_dir" ${label:+-L "^$label\$"} --show-only=json-v1 | python3 -c '
import json, pathlib, sys
programs = {}
for test in json.load(sys.stdin)["tests"]:
    if "command" not in test:
        sys.exit("not built: " + test["name"])
    properties = {p["name"]: p["value"] for p in test["properties"]}
    programs.setdefault(pathlib.Path(test["command"][0]).name, set()).update(properties.get("LABELS", []))
for name, labels in sorted(programs.items()):
    print(name, ",".join(sorted(labels)))'
}

have patchelf || die "no patchelf; run deploy/packages.sh bundle"
[[ -x $build_dir/bin/gemmd && -x $build_dir/bin/gemmctl ]] || die "no gemmd in $build_dir/bin: build it"

stage=$(mktemp -d)
chmod 755 "$stage"
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/bin" "$stage/lib" "$stage/deploy"
cp "$root_dir/LICENSE" "$root_dir/README.md" "$stage"
cp "$root_dir"/deploy/{quickstart.sh,lib.sh,matrices.py} "$stage/deploy"
copy_program "$build_dir/bin/gemmd"
copy_program "$build_dir/bin/gemmctl"
if ((with_tests)); then
  test_programs >"$stage/tests.txt"
  cp "$root_dir/deploy/run_tests.sh" "$stage/deploy"
  install -D -t "$stage/deploy/ci" "$root_dir/deploy/ci/gpu_run.sh"
  while read -r name _; do
    [[ ! -x $build_dir/bin/$name ]] || copy_program "$build_dir/bin/$name"
  done <"$stage/tests.txt"
fi
if ((${#benchmarks[@]})); then cp "$root_dir/deploy/measure.sh" "$stage/deploy"; fi
for name in "${benchmarks[@]}"; do
  if [[ -x $build_dir/bin/$name ]]; then copy_program "$build_dir/bin/$name"; fi
done
copy_libraries
copy_cupti
check_closed

# Sorted names, no owner and one time: the same build makes the same tar.
mkdir -p "$(dirname "$output")"
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 \
  --transform 's,^\.,gemmd,' -czf "$output" .
say "$output: $(du -h "$output" | cut -f1), unpacked $(du -sh "$stage" | cut -f1)," \
  "$(find "$stage/bin" -type f | wc -l) programs, $(find "$stage/lib" -type f | wc -l) libraries"
