#!/usr/bin/env bash
# Installs the missing Debian packages that building mtrain needs; does nothing if all are installed.
#   tools/setup.sh            install missing packages
#   tools/setup.sh --corpus   also the public-domain text of the quickstart
#   tools/setup.sh --tests    also packages that only tests use: an independent JSON Schema validator
#   tools/setup.sh --mpi      also MPI, for ranks in several processes and on several machines
#   tools/setup.sh --cross arm64  also packages for a build for another processor (tools/setup_cross.sh)
#   tools/setup.sh --check    only list missing packages (exit status 1 if there are any)
#   CXX=clang++-16 tools/setup.sh   also that compiler (or clang++, g++-13, ...)
set -euo pipefail

check=0 corpus=0 tests=0 mpi=0 cross=
while (($#)); do
  case "$1" in
    --check) check=1 ;;
    --corpus) corpus=1 ;;
    --tests) tests=1 ;;
    --mpi) mpi=1 ;;
    --cross)
      cross=${2-}
      if [[ -z $cross ]]; then echo "setup: --cross needs an architecture: --cross arm64" >&2; exit 2; fi
      shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "setup: unknown option '$1' (known: --check --corpus --tests --mpi --cross)" >&2; exit 2 ;;
  esac
  shift
done

has() { command -v "$1" > /dev/null 2>&1; }
installed() { [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null)" == installed ]]; }
recent_cmake() {
  has cmake || return 1
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  [[ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" == 3.25 ]]
}

missing=()
need() { # need PACKAGE [COMMAND that succeeds if it is not needed…]
  local package=$1
  shift
  if (($#)) && "$@"; then return 0; fi
  if has dpkg-query && installed "$package"; then return 0; fi
  missing+=("$package")
}
compiler=${CXX:-g++}
compiler=${compiler##*/}
case $compiler in
  clang++ | clang++-[0-9]*)
    need "clang${compiler#clang++}" has "$CXX" ;;
  g++-[0-9]*) need "$compiler" has "$CXX" ;;
  *) need g++ has "${CXX:-g++}" ;;
esac
need cmake recent_cmake
need ninja-build has ninja
need libyaml-cpp-dev
need libboost-dev test -e /usr/include/boost/dll.hpp  # any version's headers
need libcli11-dev
need libspdlog-dev
need libfmt-dev
need nlohmann-json3-dev
need doctest-dev
need libicu-dev
need libpcre2-dev
need libsimdjson-dev
need zlib1g-dev
need libzstd-dev
if ((corpus)); then
  need bible-kjv has bible
  need bible-kjv-text
fi

if ((mpi)); then
  need libopenmpi-dev
  need openmpi-bin
fi
if ((tests)); then
  need python3-jsonschema
  need python3-yaml
  # .clang-format needs this version; later Debian releases have other versions, and the format check is skipped there.
  if grep -qs '^VERSION_ID="12"' /etc/os-release; then need clang-format-14; fi
fi

cross_script=$(dirname "${BASH_SOURCE[0]}")/setup_cross.sh
if ((check)); then
  status=0
  if ((${#missing[@]})); then
    echo "setup: missing: ${missing[*]}"
    status=1
  else
    echo "setup: everything is installed"
  fi
  if [[ -n $cross ]]; then "$cross_script" --check "$cross" || status=1; fi
  exit $status
fi
if ((${#missing[@]} == 0)); then
  if [[ -n $cross ]]; then exec "$cross_script" "$cross"; fi
  exit 0
fi
if ! has apt-get; then
  echo "setup: this is not a Debian system (no apt-get), so these Debian packages could not be checked or installed:" >&2
  echo "         ${missing[*]}" >&2
  echo "       Continuing; if the build fails, install the corresponding packages of your system first." >&2
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! has sudo; then
    echo "setup: these packages are missing, and there is no sudo to install them. As root, run:" >&2
    echo "         apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing from Debian${as_root:+ with sudo}: ${missing[*]}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
    apt-get -q -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@"
}
# The log gets the whole output; a terminal shows its latest line.
shown() {
  if [[ -t 1 ]]; then
    tee -a "$log" | while IFS= read -r line; do printf '\r\033[K  %s' "${line:0:76}"; done
    printf '\r\033[K'
  else
    cat >> "$log"
  fi
}
if ! apt update 2>&1 | shown; then
  echo "setup: the package lists could not be refreshed (no network?); trying with the existing ones" >&2
fi
if ! apt install --no-remove --no-install-recommends "${missing[@]}" 2>&1 | shown; then
  echo "setup: apt-get could not install them. The end of its output:" >&2
  tail -n 15 "$log" | sed 's/^/  /' >&2
  exit 1
fi
echo "setup: done"
if [[ -n $cross ]]; then "$cross_script" "$cross"; fi
