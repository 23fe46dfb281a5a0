#!/usr/bin/env bash
# Checks what Prometheus is given (deploy/prometheus) and runs its tests: promtool, then
# prometheus_rules.py, with a scrape of the server that was built where there is one.
#   deploy/ci/prometheus_test.sh [--self-test | GEMMD]   (default: build/release/bin/gemmd)
# With --self-test: proves that each check can fail.
set -euo pipefail
# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

readonly start_seconds=60
work_dir=''
server_pid=''

clean_up() {
  [[ -z $server_pid ]] || kill -KILL "$server_pid" 2>/dev/null || true
  [[ -z $work_dir ]] || rm -rf "$work_dir"
}

# scrape GEMMD FILE: /metrics of a server that has just started.
scrape() {
  "$1" --backend cpu --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --port-file "$work_dir/ports" \
    >"$work_dir/log" 2>&1 </dev/null &
  server_pid=$!
  local deadline=$((SECONDS + start_seconds))
  until [[ -e $work_dir/ports ]]; do
    if ! kill -0 "$server_pid" 2>/dev/null || ((SECONDS >= deadline)); then
      die "$1 does not start: $(cat "$work_dir/log")"
    fi
    sleep 0.1
  done
  curl -fsS --noproxy '*' --max-time 10 -o "$2" \
    "http://$(sed -n 's/^metrics //p' "$work_dir/ports")/metrics"
  kill -KILL "$server_pid"
  wait "$server_pid" 2>/dev/null || true
  server_pid=''
}

# run_promtool ROOT: whether the tree ROOT has rules that hold and tests that pass.
run_promtool() {
  local -r folder=$1/deploy/prometheus
  promtool check config "$folder/prometheus.yml" &&
    promtool check rules --lint=all --lint-fatal "$folder"/{recording,alerts}.yml &&
    promtool test rules "$folder"/*_test.yml
}

# run_rules ROOT [SCRAPE]: whether what is named in the tree ROOT exists.
run_rules() { "$python" "$root_dir/deploy/ci/prometheus_rules.py" "$@"; }

# Each line: a file, an edit of it by sed, and a word of what is then said.
readonly promtool_breaches='
prometheus.yml|s/scrape_interval/scrape_intervals/|not found in type
recording.yml|s/sum by (job) (rate/sum by (job) rate/|parse error
recording.yml|s/job:gemmd_rejects:ratio_rate5m/job:gemmd_request_errors:ratio_rate5m/|duplicate rule
recording.yml|s/0\.99/0.5/|FAILED
recording.yml|s/part="mainloop"/part=~".+"/|FAILED
alerts.yml|s/> 0\.05/> 0.5/|FAILED
alerts.yml|s/> 0\.05/> 0.01/|FAILED
alerts.yml|s/gemmd_queue_limit_requests/1024/|FAILED
alerts.yml|s/for: 10m/for: 1s/|FAILED
alerts.yml|s/, limit!="none"//|FAILED
alerts.yml|s/sw_thermal_slowdown/sw_power_cap/|FAILED
alerts.yml|s/ and max_over_time(gemmd_pc_sampling_up\[1d\]) == 1//|FAILED
alerts.yml|/and gemmd_pc_sampling_seconds_total > 0/d|FAILED
alerts.yml|s/unless max/and max/|FAILED
alerts.yml|/sum by (job, instance, device) (gemmd_device/d|FAILED
alerts.yml|s/sample_age_seconds > 60/sample_age_seconds > 20/|FAILED'
readonly rules_breaches='
prometheus.yml|/- alerts.yml/d|alerts.yml: neither a test nor among
recording.yml|s/gemmd_lanes\[1m\]/gemmd_lane[1m]/|does not export gemmd_lane
alerts.yml|s/gemmd_health ==/gemmd_healthy ==/|does not export gemmd_healthy
alerts.yml|s/_duration_seconds_count/_duration_seconds/|does not export gemmd_request_duration_seconds
recording.yml|s/{state="busy"}/{status="busy"}/|has no label status
recording.yml|s/by (job, instance) (rate(gemmd_kernel/by (job, device) (rate(gemmd_kernel/|by (device): what it is applied to
recording.yml|s/sum \(by (job, instance)\) \(.*\)/sum \2 \1/|stand before the operand
recording.yml|s/queue_full/queue_is_full/|never has reason=~
alerts.yml|s/up{job="gemmd"} == 0/up{job="gemm"} == 0/|never has job=
alerts.yml|s/{wait="full"} >/{wait="fool"} >/|never has wait=
alerts.yml|s/"hw_slowdown/"hw_slow/|never has reason=~
recording.yml|s/sum_over_time(\(job_kernel_stages_wait\):gemmd_kernel_stall_cycles:rate5m/avg_over_time(\1:gemmd_kernel_stall:ratio_rate5m/|a mean of the ratio
alerts.yml|/runbook_url:.*#gemmddrainstuck/d|GemmdDrainStuck: runbook_url is not
alerts.yml|s/severity: info/severity: none/|severity is none of
alerts.yml|/summary: .*keeps restarting/d|GemmdRestarting: no summary
runbooks.md|/^## GemmdDrainStuck/d|GemmdDrainStuck: no runbook
runbooks.md|s/gemmd_device_info/gemmd_devices/|runbooks.md: gemmd does not export gemmd_devices
runbooks.md|s/^## GemmdDrainStuck/## GemmdDrainSlow/|GemmdDrainSlow is no alert
runbooks.md|s/^\*\*Causes\.\*\*//|its runbook has no
recording_test.yml|/value: 3e9/d;/value: 4e9/d|job_instance:gemmd_kernel_flops:rate1m: no test
recording_test.yml|s/state="idle"/state="free"/|never has state=
recording_test.yml|s/instance="b", kernel="gemv"/kernel="gemv"/|has a label instance too
alerts_test.yml|s/GemmdScrapeSlow, eval_time/GemmdScrapeSlows, eval_time/|GemmdScrapeSlows is no alert
alerts_test.yml|/{alertname: GemmdScrapeSlow,/d|GemmdScrapeSlow: no test in which it has its metrics
alerts_test.yml|/- alertname: GemmdScrapeSlow/,/#gemmdscrapeslow/d|GemmdScrapeSlow: no test in which it fires
alerts_test.yml|/instance="a", result="failed"/s/failed/budget/|gemmd_tuning_saves_total never has result="budget"
alerts_test.yml|/instance="a", result="failed"/d|GemmdTuningNotSaved: no test in which it has its metrics'

make_tree() {
  rm -rf "$1"
  mkdir -p "$1"/{deploy,tests/golden,server/metrics}
  cp -r "$root_dir/deploy/prometheus" "$1/deploy"
  cp "$root_dir"/tests/golden/{metrics,launch_labels}.txt "$1/tests/golden"
  cp "$root_dir/server/metrics/gpu_collector.cc" "$1/server/metrics"
}

# catches BREACHES COMMAND...: COMMAND takes the tree as it is, and refuses each breach of it.
catches() {
  local -r breaches=$1 tree=$work_dir/tree said=$work_dir/said
  shift
  local file edit word count=0
  make_tree "$tree"
  "$@" >"$said" 2>&1 || die "self-test: what is in the tree was refused: $(cat "$said")"
  while IFS='|' read -r file edit word; do
    [[ -n $file ]] || continue
    make_tree "$tree"
    sed -i "$edit" "$tree/deploy/prometheus/$file"
    ! cmp -s {"$root_dir","$tree"}"/deploy/prometheus/$file" ||
      die "self-test: $file has nothing to change by $edit"
    ! "$@" >"$said" 2>&1 || die "self-test: this went unseen: $file: $edit"
    grep -qF -- "$word" "$said" ||
      die "self-test: $file: $edit: '$word' was not said, but: $(cat "$said")"
    count=$((count + 1))
  done <<<"$breaches"
  say "prometheus: $1 refuses $count breaches"
}

self_test() {
  # The values of the labels that the breaches are about.
  cat >"$work_dir/scrape" <<'METRICS'
gemmd_lanes{device="0",state="busy"} 0
gemmd_lanes{device="0",state="idle"} 4
gemmd_device_memory_bytes{device="0",state="used"} 0
gemmd_device_memory_bytes{device="0",state="free"} 0
gemmd_rejected_total{reason="queue_full"} 0
gemmd_rejected_total{reason="queue_bytes"} 0
gemmd_rejected_total{reason="reply_bytes"} 0
gemmd_rejected_total{reason="invalid"} 0
gemmd_rejected_total{reason="device_lost"} 0
gemmd_tuning_saves_total{result="ok"} 0
gemmd_tuning_saves_total{result="failed"} 0
METRICS
  catches "$promtool_breaches" run_promtool "$work_dir/tree"
  catches "$rules_breaches" run_rules "$work_dir/tree" "$work_dir/scrape"
}

main() {
  have promtool || die "no promtool; run deploy/packages.sh test"
  python=$(find_python yaml)
  "${python:-false}" -c 'import yaml' 2>/dev/null ||
    die "no Python 3 with yaml; run deploy/packages.sh lint"
  readonly python
  trap clean_up EXIT
  work_dir=$(mktemp -d)
  if [[ ${1:-} == --self-test ]]; then
    self_test
    return
  fi
  local -r gemmd=${1:-$root_dir/build/release/bin/gemmd}
  local -a scraped=()
  if [[ -x $gemmd ]]; then
    scrape "$gemmd" "$work_dir/scrape"
    scraped=("$work_dir/scrape")
  elif (($#)); then
    die "no server at $gemmd"
  else
    say "skipped: the values of labels: no server at $gemmd"
  fi
  local status=0
  run_promtool "$root_dir" || status=1
  run_rules "$root_dir" "${scraped[@]}" || status=1
  ((status == 0)) || die "see above"
}

main "$@"
