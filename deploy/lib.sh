# Shared by the scripts of deploy/; source it. Paths, timed steps, failure, the tools' choice.
# shellcheck shell=bash
# shellcheck disable=SC2034  # what it sets is for the scripts that source it

# The folder that holds deploy/: a checkout's root, or a bundle's.
root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
  warn "error: $*"
  exit 1
}

# step TITLE COMMAND...: runs it and says how long it took. The command runs in this shell, so it may
# set variables, and a failing one ends the script through errexit.
step() {
  local title=$1
  shift
  local start=$EPOCHREALTIME
  say "==> $title"
  "$@"
  printf '    %s: %s s\n' "$title" "$(seconds_since "$start")"
}

# seconds_since START: START and the clock are EPOCHREALTIME values, in any locale's decimal mark.
seconds_since() {
  local start=${1//[.,]/} now=${EPOCHREALTIME//[.,]/}
  local ms=$(((now - start) / 1000))
  printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

have() { command -v "$1" >/dev/null 2>&1; }

# One compiler process a core, but no more than memory holds: a file that includes gRPC takes 1 GB.
build_jobs() {
  local cores memory_jobs
  cores=$(nproc)
  memory_jobs=$(awk '/^MemAvailable:/ {print int($2 / 1024 / 1200)}' /proc/meminfo)
  ((memory_jobs >= 1)) || memory_jobs=1
  say "${GEMMD_JOBS:-$((cores < memory_jobs ? cores : memory_jobs))}"
}

# find_python MODULE: a Python 3 with the module where there is one (a user's own python3 may lack it
# while the distribution's has it), else any Python 3, else nothing.
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if have "$candidate" && "$candidate" -c "import $1" 2>/dev/null; then
      say "$candidate"
      return
    fi
  done
  ! have python3 || say python3
}

# build_release TARGET...: configures and builds the release preset; no target means all of it.
# Repeated, it does only what has changed.
build_release() {
  have cmake || die "no cmake; run deploy/packages.sh build, or leave --no-install out"
  cmake -S "$root_dir" --preset release -DGEMMD_SERVER=ON -DGEMMD_TESTS=ON
  local -a targets=()
  (($# == 0)) || targets=(--target "$@")
  cmake --build "$root_dir/build/release" -j "$(build_jobs)" "${targets[@]}"
}

# source_files SUFFIX...: the project's own files of these suffixes, NUL-terminated, relative to the
# root, without hidden folders. It asks the file system, not git: an archive and somebody else's
# checkout work too.
source_files() {
  local -a names=()
  local suffix
  for suffix in "$@"; do names+=(-o -name "*.$suffix"); done
  (cd "$root_dir" && find . \( -path ./build -o -path './.?*' \) -prune -o -type f \
    \( "${names[@]:1}" \) -printf '%P\0' | sort -z)
}
