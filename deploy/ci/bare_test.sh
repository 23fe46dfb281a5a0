#!/usr/bin/env bash
# Proves the bare case: makes a minimal Debian 12 in a folder, copies HEAD into it, runs
# deploy/quickstart.sh there twice and says how long each run took. As root, with debootstrap.
#   deploy/ci/bare_test.sh [--keep] [FOLDER]         (default: a new folder; --keep leaves it there)
# MIRROR names another Debian mirror. The folder's apt gets this machine's network settings.
set -euo pipefail
# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

readonly first_limit=600 second_limit=60  # seconds on two cores
keep=0
if [[ ${1:-} == --keep ]]; then
  keep=1
  shift
fi
((EUID == 0)) || die "chroot needs root"
have debootstrap || die "no debootstrap; apt-get install debootstrap"
bare=${1:-$(mktemp -d)}

clean_up() {
  umount "$bare/dev" "$bare/proc" 2>/dev/null || true
  # Never remove a folder into which something is still mounted.
  if ((!keep)) && ! grep -q " $bare/" /proc/mounts; then rm -rf --one-file-system "$bare"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

make_machine() {
  debootstrap --variant=minbase bookworm "$bare" "${MIRROR:-http://deb.debian.org/debian}" >/dev/null
  cp /etc/resolv.conf /etc/hosts "$bare/etc/"
  apt-config dump | grep -E '^Acquire::' >"$bare/etc/apt/apt.conf.d/99host"
  mount -t proc proc "$bare/proc"
  mount --bind /dev "$bare/dev"
}

copy_head() {
  mkdir "$bare/gemmd"
  git -c safe.directory='*' -C "$root_dir" archive HEAD | tar -x -C "$bare/gemmd"
}

# quickstart LIMIT: fails where it takes longer.
quickstart() {
  local start=$SECONDS
  chroot "$bare" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    /gemmd/deploy/quickstart.sh </dev/null
  local took=$((SECONDS - start))
  ((took < $1)) || die "quickstart took $took s; the limit is $1 s"
}

step "debootstrap" make_machine
step "copy of HEAD" copy_head
step "first quickstart" quickstart "$first_limit"
step "second quickstart" quickstart "$second_limit"
say "the bare case holds"
