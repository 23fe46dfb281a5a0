#!/usr/bin/env bash
# Builds the Dockerfile's CPU image on a minimal Debian and proves that it works as it is deployed:
# non-root, read-only root, as process 1, with its own network; it passes its health check, multiplies,
# is scraped, and drains on SIGTERM. As root, with buildah, debootstrap and util-linux; no registry.
#   deploy/ci/image_test.sh [--full] [--cache DIR] [--skip-if-unable] [BUNDLE.tar.gz]
#   --full            compile in the image's build stage too; else BUNDLE takes its place (default: what
#                     deploy/bundle.sh makes of build/release, which only runs on a Debian 12)
#   --cache           keep the base here for later runs, for 30 days
#   --skip-if-unable  where this host cannot do it at all, say why and succeed
# MIRROR names another Debian mirror.
set -euo pipefail
# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

readonly suite=bookworm base=docker.io/library/debian:12-slim build_base=docker.io/library/debian:12
readonly image=localhost/gemmd:test
readonly most_megabytes=400
readonly base_days=30
readonly patience_seconds=60  # for the server to be healthy, and to be gone

usage() { sed -n '2,10s/^# \?//p' "$0"; }

full=0
cache=''
may_skip=0
bundle=''
while (($#)); do
  case $1 in
    --full) full=1 ;;
    --skip-if-unable) may_skip=1 ;;
    --cache)
      (($# >= 2)) || die "$1 needs a value"
      cache=$2
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    -*) die "unknown argument '$1'; see $0 --help" ;;
    *) bundle=$1 ;;
  esac
  shift
done

# Prints why no change of packages would let this host run the test; nothing where it can.
unable() {
  ((EUID == 0)) || { say "mounts and namespaces need root" && return; }
  # shellcheck disable=SC2016  # the inner shell's variable
  unshare --mount --net --pid --fork sh -c 'mount -t tmpfs tmpfs "$1" && mknod "$1/null" c 1 3' \
    sh "$work" 2>/dev/null || { say "namespaces, mounts or device files are refused here" && return; }
  ((full)) || [[ -n $bundle || $(. /etc/os-release && say "$ID:$VERSION_ID") == debian:12 ]] ||
    say "the bundle of this distribution does not run on the base, a Debian 12"
}

for tool in buildah debootstrap unshare nsenter ip curl; do
  have "$tool" || die "no $tool; run deploy/packages.sh image"
done
((full)) || [[ -z $bundle || -f $bundle ]] || die "there is no bundle $bundle"

work=$(mktemp -d)
init=''  # the host's process ID of the container's process 1
clean_up() {
  [[ -z $init ]] || kill -KILL "$init" 2>/dev/null || true
  umount -R "$work/root" 2>/dev/null || true
  grep -q " $work/" /proc/mounts || rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
why=$(unable)
if [[ -n $why ]]; then
  ((may_skip)) || die "$why"
  say "skipped: the image's test: $why"
  exit 0
fi

store() {
  buildah --root "$work/images" --runroot "$work/run" --storage-driver vfs "$@"
}

# Makes the file $work/base.tar, or takes the cache's.
make_base_archive() {
  local kept=$cache/$suite.tar
  if [[ -n $cache && -n $(find "$kept" -mtime -"$base_days" 2>/dev/null) ]]; then
    ln -s "$(realpath "$kept")" "$work/base.tar"
    return
  fi
  debootstrap --variant=minbase "$suite" "$work/base" "${MIRROR:-http://deb.debian.org/debian}" \
    >"$work/debootstrap.log" || { tail "$work/debootstrap.log" >&2 && die "debootstrap failed"; }
  apt-config dump | grep -E '^Acquire::' >"$work/base/etc/apt/apt.conf.d/99host" || true
  tar -C "$work/base" --numeric-owner -cf "$work/base.tar" .
  rm -rf --one-file-system "$work/base"
  # A whole file takes the name, and no base is as good as an old one.
  [[ -z $cache ]] || { mkdir -p "$cache" && cp "$work/base.tar" "$kept.$$" && mv "$kept.$$" "$kept"; } ||
    warn "the base is not kept: $cache cannot be written"
}

make_base() {
  make_base_archive
  local container
  container=$(store from scratch)
  store add -q "$container" "$work/base.tar" / >/dev/null
  store commit -q --rm "$container" "$base" >/dev/null
  store tag "$base" "$build_base"
}

# What stands for the build stage: the folder that it would leave, /opt/gemmd.
unpack_bundle() {
  if [[ -z $bundle ]]; then
    bundle=$work/gemmd.tar.gz
    "$root_dir/deploy/bundle.sh" "$bundle" >"$work/bundle.log" ||
      { cat "$work/bundle.log" >&2 && die "no bundle"; }
  fi
  mkdir -p "$work/stage/opt/gemmd"
  tar -xzf "$bundle" -C "$work/stage/opt/gemmd" --strip-components=1
}

build_image() {
  local -a stage=()
  if ((!full)); then
    unpack_bundle
    stage=(--build-context "build=$work/stage")
  fi
  # Docker's format: that of OCI has no health check.
  store build --quiet --isolation chroot --format docker --pull-never "${stage[@]}" \
    --build-arg VERSION=test --tag "$image" "$root_dir" >"$work/build.log" 2>&1 ||
    { tail -n 30 "$work/build.log" >&2 && die "the image cannot be built"; }
}

# config FIELD: of the image's configuration, a list one a line.
config() {
  store inspect --type image --format "{{range .Docker.Config.$1}}{{println .}}{{end}}" "$image" |
    sed '/^$/d'
}

check_config() {
  user=$(store inspect --type image --format '{{.Docker.Config.User}}' "$image")
  [[ $user =~ ^[1-9][0-9]*:[1-9][0-9]*$ ]] || die "the image's user is '$user', not numbers above 0"
  mapfile -t command < <(config Entrypoint && config Cmd)
  [[ ${command[0]:-} == /* ]] || die "the entry point '${command[*]}' is not in exec form"
  mapfile -t environment < <(config Env)
  mapfile -t health < <(config Healthcheck.Test)
  [[ ${health[0]:-} == CMD ]] || die "the health check '${health[*]}' is not in exec form"
  health=("${health[@]:1}")
  local label labels
  labels=$(store inspect --type image --format '{{.Docker.Config.Labels}}' "$image")
  for label in title description licenses version; do
    [[ $labels == *"org.opencontainers.image.$label:"[^\ ]* ]] || die "the image has no label $label"
  done
  local megabytes
  megabytes=$(($(store images --json "$image" | sed -n 's/.*"size": "\([0-9]*\).*/\1/p')))
  ((megabytes > 0 && megabytes <= most_megabytes)) ||
    die "the image has $megabytes MB; the limit is $most_megabytes MB"
  say "    $megabytes MB, user $user, ${command[*]}"
}

# A runtime's work by hand, since one may not be able to run within a container: a read-only root, a
# tmpfs for /tmp and /dev, own processes and network, no new privileges, the image's own command.
start_container() {
  local container
  container=$(store from --pull-never "$image")
  mkdir "$work/root"
  mount --bind "$(store mount "$container")" "$work/root"
  mount -o remount,bind,ro "$work/root"
  mount -t tmpfs -o nosuid,nodev tmpfs "$work/root/tmp"
  mount -t tmpfs -o nosuid,nodev tmpfs "$work/root/dev"
  mkdir "$work/root/dev/shm"
  mknod -m 666 "$work/root/dev/null" c 1 3
  mknod -m 444 "$work/root/dev/urandom" c 1 9
  # shellcheck disable=SC2016  # the inner shell's variables
  unshare --mount --net --pid --fork sh -c '
    root=$1 user=$2 && shift 2 && ip link set lo up && mount -t proc proc "$root/proc" &&
    exec setpriv --no-new-privs chroot --userspec="$user" "$root" env -i "$@"' \
    sh "$work/root" "$user" "${environment[@]}" "${command[@]}" >"$work/server.log" 2>&1 &
  unshare_pid=$!
  until init=$(pgrep -P "$unshare_pid"); do
    kill -0 "$unshare_pid" 2>/dev/null || die "the container did not start: $(cat "$work/server.log")"
  done
}

# inside COMMAND...: in the container's namespaces, as its user, with its environment.
inside() {
  nsenter --target "$init" --mount --net --pid chroot --userspec="$user" "$work/root" \
    env -i "${environment[@]}" "$@"
}

wait_until_healthy() {
  local -i end=SECONDS+patience_seconds
  until inside "${health[@]}" >"$work/health.log" 2>&1; do
    kill -0 "$init" 2>/dev/null || die "the server ended: $(tail -n 5 "$work/server.log")"
    ((SECONDS < end)) || die "not healthy after $patience_seconds s: $(cat "$work/health.log")"
  done
}

check_confinement() {
  local status=/proc/$init/status
  [[ $(awk '/^Uid:/ {print $2 ":" $3}' "$status") == "${user%:*}:${user%:*}" ]] ||
    die "the server does not run as $user"
  [[ $(awk '/^NSpid:/ {print $NF}' "$status") == 1 ]] || die "the server is not process 1"
  ! inside /bin/sh -c ': >/opt/gemmd/x' 2>/dev/null || die "the root can be written"
  local owner
  owner=$(stat -c %u:%g "$work/root/var/lib/gemmd")
  [[ $owner == "$user" ]] || die "/var/lib/gemmd, for a volume, is of $owner"
}

multiply_and_scrape() {
  inside /opt/gemmd/bin/gemmctl check --count 20 --max-extent 64 >"$work/check.log" 2>&1 ||
    die "a product failed: $(tail -n 5 "$work/check.log")"
  # The host's curl in the container's network alone.
  nsenter --target "$init" --net curl -fsS http://127.0.0.1:9464/metrics >"$work/metrics"
  local -i served
  served=$(awk '/^gemmd_requests_total\{.*code="OK".*method="Gemm/ {sum += $2} END {print sum + 0}' \
    "$work/metrics")
  ((served >= 20)) || die "the metrics know of $served products, of 20 at least"
}

drain() {
  kill -TERM "$init"
  local -i status=0 end=SECONDS+patience_seconds
  while kill -0 "$unshare_pid" 2>/dev/null; do
    ((SECONDS < end)) || die "not gone $patience_seconds s after SIGTERM"
    read -rt 0.1 <> <(:) || true
  done
  wait "$unshare_pid" || status=$?
  init=''
  ((status == 0)) || die "exit status $status after SIGTERM: $(tail -n 3 "$work/server.log")"
  grep -q drained "$work/server.log" || die "the server did not drain: $(tail -n 3 "$work/server.log")"
}

step "base image" make_base
step "image" build_image
step "its configuration" check_config
step "start" start_container
step "health" wait_until_healthy
step "confinement" check_confinement
step "products and a scrape" multiply_and_scrape
step "drain" drain
say "the image holds"
