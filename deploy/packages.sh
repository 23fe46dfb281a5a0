#!/usr/bin/env bash
# The one list of distribution packages, for Debian 12 and Ubuntu 24.04. Installs what is missing.
#   deploy/packages.sh [--no-install | --list] GROUP...
# Groups: build (compile, test and run everything but CUDA), test (Prometheus), lint (what deploy/ci
# needs besides, schemas in build/schemas included), bundle (what deploy/bundle.sh needs besides), image
# (what deploy/ci/image_test.sh needs besides bundle). With --no-install it only names what is missing.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

declare -rA packages=(
  [build]="g++ cmake ninja-build ccache pkg-config
    libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
    libspdlog-dev prometheus-cpp-dev libcli11-dev libopenblas-dev
    libgtest-dev libgmock-dev libbenchmark-dev
    python3 python3-numpy curl ca-certificates"
  [test]="prometheus"
  [lint]="clang-format-14 clang-tidy-14 shellcheck git python3-yaml python3-jsonschema python3-pip spin"
  [bundle]="patchelf"
  [image]="buildah debootstrap util-linux iproute2 procps curl"
)

usage() { sed -n '2,6s/^# \?//p' "$0"; }

# Prints the packages of the groups that are not installed.
missing() {
  local group package state
  for group in "$@"; do
    for package in ${packages[$group]}; do
      state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
      [[ $state == installed ]] || say "$package"
    done
  done
}

# Prints the prefix with which a command runs as root: nothing, or sudo.
as_root() {
  if ((EUID == 0)); then
    return 0
  fi
  have sudo || return 1
  # Without a terminal sudo must not ask for a password.
  if [[ -t 0 ]]; then say sudo; else sudo -n true 2>/dev/null && say sudo; fi
}

# keep_stopped UNIT [SUDO]: masks a service that is wanted for its tools alone, unless it is there
# already: the distribution starts what it installs, then and at each boot.
keep_stopped() {
  local unit=/etc/systemd/system/$1.service
  [[ -d /etc/systemd/system && ! -e $unit && ! -L $unit ]] || return 0
  ${2:+"$2"} ln -s /dev/null "$unit"
  say "    masked $1.service: it is installed for its tools"
}

# install PACKAGE...: the index is fetched only where the packages cannot be had without it.
install() {
  local sudo
  sudo=$(as_root) || die "not root, and sudo is not usable here; as root: apt-get install $*"
  local -a apt=(${sudo:+"$sudo"} env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  local -a get=("${apt[@]}" install -y --no-install-recommends "$@")
  [[ " $* " != *' prometheus '* ]] || keep_stopped prometheus "$sudo"
  local log
  log=$(mktemp)
  if "${get[@]}" >"$log" 2>&1 </dev/null; then
    rm -f "$log"
    return
  fi
  say "    apt-get update"
  if ! { "${apt[@]}" update && "${get[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    rm -f "$log"
    die "apt-get could not install: $*"
  fi
  rm -f "$log"
}

# install_missing MAY_INSTALL GROUP...
install_missing() {
  local -r may_install=$1
  shift
  local -a absent
  mapfile -t absent < <(missing "$@")
  ((${#absent[@]})) || return 0
  if ((!may_install)); then
    warn "not installed, as --no-install was given: ${absent[*]}"
    return 0
  fi

  local id='' version=''
  id=$(. /etc/os-release && say "${ID:-}")
  version=$(. /etc/os-release && say "${VERSION_ID:-}")
  case $id:$version in
    debian:12 | ubuntu:24.04) ;;
    *) die "'$id $version' is neither Debian 12 nor Ubuntu 24.04; install the likes of" \
      "${absent[*]} yourself and pass --no-install" ;;
  esac
  say "    installing ${absent[*]}"
  install "${absent[@]}"
}

# Fetches the wheels that have schemas. They are read as they are: nothing of them is installed or run.
fetch_schemas() {
  local -r wanted=$root_dir/deploy/ci/schemas.txt folder=$root_dir/build/schemas
  ! cmp -s "$wanted" "$folder/schemas.txt" || return 0
  if (($1 == 0)); then
    warn "not fetched, as --no-install was given: the schemas of deploy/ci/schemas.txt"
    return 0
  fi
  say "    fetching schemas"
  rm -rf "$folder"
  /usr/bin/python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
    --only-binary :all: --dest "$folder" --requirement "$wanted" ||
    die "pip could not fetch what deploy/ci/schemas.txt names"
  cp "$wanted" "$folder"
}

main() {
  local may_install=1 list=0
  local -a groups=()
  while (($#)); do
    case $1 in
      --no-install) may_install=0 ;;
      --list) list=1 ;;
      -h | --help) usage && exit 0 ;;
      *)
        [[ -n ${packages[$1]:-} ]] || die "unknown group '$1'; groups: ${!packages[*]}"
        groups+=("$1")
        ;;
    esac
    shift
  done
  ((${#groups[@]})) || die "name a group: ${!packages[*]}"

  if ((list)); then
    local group
    for group in "${groups[@]}"; do tr -s ' \n' '\n' <<<"${packages[$group]}"; done
    exit 0
  fi

  if ! have dpkg-query || ! have apt-get; then
    ((may_install)) || return 0
    die "no apt-get: this installs on Debian 12 and Ubuntu 24.04; elsewhere install the likes of" \
      "'$0 --list build' and pass --no-install"
  fi
  install_missing "$may_install" "${groups[@]}"
  [[ " ${groups[*]} " != *' lint '* ]] || fetch_schemas "$may_install"
}

main "$@"
