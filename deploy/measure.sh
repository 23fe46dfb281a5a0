#!/usr/bin/env bash
# What a host with a GPU measures, from a bundle made with --bench or from a build: the result files that
# the documents' tables are made of (tests/bench/results), one a step. A step that fails is told, and the
# next is taken; exits 1 where one failed.
#   deploy/measure.sh [--shapes FILE] [--batched FILE] [--commit C] OUTPUT_FOLDER [STEP...]
# Steps, all of them without a list: shapes plans probe sampling-cost (of the list of shapes), batched (of
# the list of batches), selection, sweep, calibration: lines of JSON; lab-model, lab-ladder, lab-residency,
# lab-hazard: an object each, and what people read of it; lab-timeline: traces and pictures.
set -uo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

shapes='' batched='' commit=unknown failed=0
# Of random shapes to which no constant was fitted.
readonly selection_seed=6

usage() { sed -n '2,9s/^# \?//p' "$0"; }

while (($#)); do
  case $1 in
    --shapes | --batched | --commit)
      (($# >= 2)) || die "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    -*) die "unknown argument '$1'; see $0 --help" ;;
    *) break ;;
  esac
  shift
done
(($#)) || die "name an output folder; see $0 --help"
mkdir -p "$1" || die "cannot make '$1'"
output=$(cd "$1" && pwd)
shift
bin=$root_dir/bin
[[ -d $bin ]] || bin=$root_dir/build/release/bin
bench() { "$bin/gemmd_bench" "$@" --commit "$commit"; }
lab() { "$bin/gemmd_lab" --commit "$commit" "$@"; }

# timeline NAME ARGUMENT...
timeline() { lab timeline --svg "$output/$1.svg" --trace "$output/$1-trace.json" "${@:2}"; }

run() {
  case $1 in
    shapes) bench shapes --shapes "$shapes" ;;
    batched) bench shapes --shapes "$batched" ;;
    plans) bench plans --shapes "$shapes" ;;
    probe) bench probe-cost --shapes "$shapes" ;;
    sampling-cost) bench pc-sampling-cost --shapes "$shapes" ;;
    selection) bench selection --seed "$selection_seed" ;;
    sweep) bench sweep --max-stages 8 ;;
    calibration) bench calibrate ;;
    lab-timeline)
      timeline lab-timeline && timeline lab-timeline-kernel --kernel cp_async_128x128x64 &&
        timeline lab-timeline-tma --kernel tma_wgmma_128x128x64 &&
        timeline lab-timeline-pingpong --kernel tma_pingpong_128x128x64
      ;;
    lab-model | lab-ladder | lab-residency | lab-hazard) lab --json "${1#lab-}" ;;
    *) die "unknown step '$1'; see $0 --help" ;;
  esac
}

# result_of STEP: where its standard output goes.
result_of() {
  case $1 in
    lab-*) say "$output/$1.json" ;;
    *) say "$output/$1.jsonl" ;;
  esac
}

(($#)) || set -- shapes plans probe sampling-cost batched selection sweep calibration \
  lab-model lab-ladder lab-residency lab-hazard lab-timeline
for step in "$@"; do
  start=$EPOCHREALTIME verdict=measured result=$(result_of "$step")
  run "$step" >"$result.part" || verdict="FAILED ($?)"
  if [[ $verdict == measured ]]; then
    mv "$result.part" "$result"
    [[ -s $result ]] || rm "$result"
  else
    failed=$((failed + 1))
  fi
  say "$step: $verdict, $(seconds_since "$start") s"
done
((failed == 0)) || die "$failed step(s) failed"
