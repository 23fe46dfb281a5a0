#!/usr/bin/env bash
# From a bare machine to a checked product: installs what is missing, builds gemmd, starts it on free
# ports, multiplies two .npy files over gRPC, checks the result, shows some metrics, stops the server.
#   deploy/quickstart.sh [--no-install] [--no-build] [--bin DIR] [--backend auto|cuda|cpu]
#   --no-install   leave the distribution's packages as they are
#   --no-build     use the binaries in --bin DIR (default: build/release/bin, in a bundle its bin/)
#   --backend      auto, the default, takes a usable GPU and else the CPU
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly start_seconds=60  # for the server to check its kernels and answer
readonly stop_seconds=45   # above the server's own drain limit

install=1
build=1
bin_dir=$root_dir/build/release/bin
backend=auto
server_pid=''
work_dir=''

usage() { sed -n '2,7s/^# \?//p' "$0"; }

parse_arguments() {
  # A bundle holds binaries and no sources.
  if [[ ! -e $root_dir/CMakeLists.txt ]]; then
    install=0
    build=0
    bin_dir=$root_dir/bin
  fi
  while (($#)); do
    case $1 in
      --no-install) install=0 ;;
      --no-build) build=0 install=0 ;;
      --bin | --backend)
        (($# >= 2)) || die "$1 needs a value"
        if [[ $1 == --bin ]]; then bin_dir=$(cd "$2" && pwd); else backend=$2; fi
        shift
        ;;
      -h | --help) usage && exit 0 ;;
      *) die "unknown argument '$1'; see $0 --help" ;;
    esac
    shift
  done
}

# Runs at every exit: no server, no temporary file stays behind, and a failure shows the log.
clean_up() {
  local status=$?
  trap - EXIT INT TERM HUP
  if [[ -n $server_pid ]] && kill -0 "$server_pid" 2>/dev/null; then
    kill -KILL "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
  fi
  if ((status != 0)) && [[ -s $work_dir/gemmd.log ]]; then
    warn "the last lines of the server's log:"
    tail -n 30 "$work_dir/gemmd.log" >&2
  fi
  [[ -z $work_dir ]] || rm -rf "$work_dir"
  ((status == 0)) || warn "FAILED (status $status)"
  exit "$status"
}

# Reads what the server writes, at once and whole, when it serves: "grpc HOST:PORT" and
# "metrics HOST:PORT".
read_ports() {
  [[ -e $work_dir/ports ]] || return 1
  server_address=$(sed -n 's/^grpc //p' "$work_dir/ports")
  metrics_address=$(sed -n 's/^metrics //p' "$work_dir/ports")
  [[ -n $server_address && -n $metrics_address ]]
}

# Sets server_address and metrics_address once the server answers its health check.
start_server() {
  "$bin_dir/gemmd" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --port-file "$work_dir/ports" \
    --backend "$backend" >"$work_dir/gemmd.log" 2>&1 </dev/null &
  server_pid=$!
  local deadline=$((SECONDS + start_seconds))
  until read_ports && "$bin_dir/gemmctl" --server "$server_address" health >/dev/null 2>&1; do
    kill -0 "$server_pid" 2>/dev/null || die "the server ended while it started"
    ((SECONDS < deadline)) || die "the server did not answer within $start_seconds s"
    sleep 0.1
  done
  say "    gemmd listens at $server_address, metrics at $metrics_address"
}

multiply() {
  "$bin_dir/gemmctl" --server "$server_address" matmul "$work_dir/A.npy" "$work_dir/B.npy" \
    -o "$work_dir/D.npy" | sed 's/^/    /'
}

# Random shapes, types, transposes and epilogues, each checked on the client's side.
check() {
  "$bin_dir/gemmctl" --server "$server_address" check --count 20 --seed 1 | sed 's/^/    /'
}

# Prints the metrics; a host of a bundle may have no curl.
scrape() {
  if have curl; then
    curl -fsS --noproxy '*' --max-time 10 "http://$metrics_address/metrics"
    return
  fi
  local connection
  exec {connection}<>"/dev/tcp/${metrics_address%:*}/${metrics_address##*:}"
  printf 'GET /metrics HTTP/1.0\r\n\r\n' >&"$connection"
  timeout 10 sed '1,/^\r$/d' <&"$connection"
  exec {connection}>&-
}

show_metrics() {
  scrape >"$work_dir/metrics"
  grep -E '^gemmd_requests_total\{code="OK",method="Gemm"\} [1-9]' "$work_dir/metrics" |
    sed 's/^/    /' || die "no finished request in the metrics"
  local -r shown='gemmd_(plan_selected|kernel_launches|kernel_flops)_total\{|gemmd_kernel_duration_seconds_(sum|count)\{'
  grep -E "^($shown)" "$work_dir/metrics" | grep -v ' 0$' | head -n 8 | sed 's/^/    /'
}

stop_server() {
  kill -TERM "$server_pid"
  local deadline=$((SECONDS + stop_seconds)) status=0
  while kill -0 "$server_pid" 2>/dev/null; do
    ((SECONDS < deadline)) || die "the server did not stop within $stop_seconds s of SIGTERM"
    sleep 0.1
  done
  wait "$server_pid" || status=$?
  ((status == 0)) || die "the server exited with status $status after SIGTERM"
}

main() {
  local began=$EPOCHREALTIME
  parse_arguments "$@"
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP

  if ((install)); then step "packages" "$root_dir/deploy/packages.sh" build; fi
  if ((build)); then step "build" build_release gemmd gemmctl; fi
  [[ -x $bin_dir/gemmd && -x $bin_dir/gemmctl ]] || die "no gemmd and gemmctl in $bin_dir"

  work_dir=$(mktemp -d)
  local python
  python=$(find_python numpy)
  step "server start" start_server
  if [[ -n $python ]]; then
    step "write A.npy and B.npy" "$python" "$root_dir/deploy/matrices.py" write "$work_dir"
    step "matmul" multiply
    step "verify D.npy" "$python" "$root_dir/deploy/matrices.py" verify "$work_dir"
  else
    say "==> no python3 to write matrices with: gemmctl check stands alone"
  fi
  step "check 20 random products" check
  step "metrics" show_metrics
  step "server stop" stop_server
  say "gemmd works here: $(seconds_since "$began") s"
}

main "$@"
