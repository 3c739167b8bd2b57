#!/usr/bin/env bash
# Sets up the cross build of mtrain for another processor; tools/setup.sh --cross ARCH runs it.
#   tools/setup_cross.sh arm64           installs Debian's cross compiler and emulator, and makes build/sysroot-arm64
#   tools/setup_cross.sh --check arm64   only lists what is missing (exit status 1 if anything is)
# The sysroot is a folder of unpacked Debian packages of that architecture. apt keeps separate lists and files for it
# in that folder: the machine's own packages and architectures do not change.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

check=0 arch=
for argument in "$@"; do
  case "$argument" in
    --check) check=1 ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    arm64) arch=$argument ;;
    *) echo "setup: no cross build for '$argument' (known: arm64)" >&2; exit 2 ;;
  esac
done
if [[ -z $arch ]]; then echo "setup: for which architecture? (known: arm64)" >&2; exit 2; fi
fail() { echo "setup: $*" >&2; exit 1; }
if [[ "$(dpkg --print-architecture 2> /dev/null)" == "$arch" ]]; then
  echo "setup: this machine is $arch itself, so there is no cross build to set up; build with cmake --preset release"
  exit 0
fi

sysroot=$root/build/sysroot-$arch
tools=(g++-aarch64-linux-gnu qemu-user)
# Packages of the other architecture that mtrain needs; apt adds their dependencies. The C++ runtime is listed
# because this machine's compiler provides it only for linking, and programs need it in the sysroot to run.
libraries=(libc6-dev libstdc++6 libyaml-cpp-dev libspdlog-dev libfmt-dev libicu-dev libpcre2-dev
  libsimdjson-dev zlib1g-dev libzstd-dev libcli11-dev nlohmann-json3-dev doctest-dev libboost-dev)
wanted="${libraries[*]} of $(. /etc/os-release 2> /dev/null && echo "${VERSION_CODENAME-}")"

missing=()
for package in "${tools[@]}"; do
  if [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null)" != installed ]]; then missing+=("$package"); fi
done
sysroot_is_there() { [[ "$(cat "$sysroot/.made-of" 2> /dev/null)" == "$wanted" ]]; }

if ((${#missing[@]} == 0)) && sysroot_is_there; then
  echo "setup: the cross build for $arch is complete: ${tools[*]}, ${sysroot#"$root"/}"
  exit 0
fi
if ((check)); then
  if ((${#missing[@]})); then echo "setup: missing: ${missing[*]}"; fi
  if ! sysroot_is_there; then echo "setup: missing: ${sysroot#"$root"/} with $arch libraries"; fi
  exit 1
fi
for program in apt-get dpkg-deb; do
  command -v $program > /dev/null 2>&1 || fail "the cross build can be set up only on Debian, and $program was not found"
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT
logged() { # logged WHAT COMMAND…: the output is shown if the command fails
  local what=$1
  shift
  if ! "$@" > "$log" 2>&1; then
    tail -n 15 "$log" | sed 's/^/  /' >&2
    fail "$what failed; the end of its output is above"
  fi
}

install_tools() {
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo > /dev/null 2>&1 || fail "there is no sudo; as root, run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  echo "setup: installing from Debian${as_root:+ with sudo}: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    apt-get -q -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0)
  "${apt[@]}" update > "$log" 2>&1 || echo "setup: the package lists could not be refreshed; trying with the existing ones" >&2
  logged "apt-get install" "${apt[@]}" install --no-install-recommends "${missing[@]}"
}

# The machine's Debian sources according to apt: a mirror that serves one architecture also serves the others.
debian_sources() {
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg found
  found=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    sed -n 's/^Debian //p' | sort -u)
  [[ -n $found ]] || fail "apt has no source of Debian packages; run 'apt-get update' first"
  sed "s|^|deb [arch=$arch signed-by=$keys] |" <<< "$found"
}

make_sysroot() {
  local new=$sysroot.new state=$sysroot.new/.apt deb
  rm -rf "$new"
  mkdir -p "$state"/{lists/partial,archives/partial,empty}
  : > "$state/status"
  debian_sources > "$state/sources.list"
  local apt=(env LC_ALL=C.UTF-8 apt-get -q -y -o "APT::Architecture=$arch" -o "APT::Architectures::=$arch"
    -o "Dir::State=$state" -o "Dir::State::status=$state/status" -o "Dir::State::lists=$state/lists"
    -o "Dir::Cache=$state" -o "Dir::Cache::archives=$state/archives" -o "Dir::Etc::SourceList=$state/sources.list"
    -o "Dir::Etc::SourceParts=$state/empty" -o "Dir::Etc::PreferencesParts=$state/empty" -o APT::Sandbox::User=root
    -o Acquire::Languages=none -o Debug::NoLocking=1)
  echo "setup: fetching $arch packages into ${sysroot#"$root"/}: ${libraries[*]}"
  logged "apt-get update for $arch" "${apt[@]}" update
  logged "fetching the packages of $arch" "${apt[@]}" install --download-only --no-install-recommends "${libraries[@]}"
  for deb in "$state"/archives/*.deb; do dpkg-deb -x "$deb" "$new"; done
  make_links_relative "$new"
  rm -rf "$new"/usr/share/{doc,man,icu,locale}
  echo "setup: unpacked $(ls "$state"/archives/*.deb | wc -l) packages, $(du -sm --exclude=.apt "$new" | cut -f1) MB"
  rm -rf "$state"
  echo "$wanted" > "$new/.made-of"
  rm -rf "$sysroot"
  mv "$new" "$sysroot"
}

# Absolute links such as libm.so -> /lib/…/libm.so.6 must point into the sysroot.
make_links_relative() {
  local link target
  while IFS= read -r -d '' link; do
    target=$(readlink "$link")
    ln -sfn "$(realpath -ms --relative-to="$(dirname "$link")" "$1$target")" "$link"
  done < <(find "$1" -type l -lname '/*' -print0)
}

if ((${#missing[@]})); then install_tools; fi
if ! sysroot_is_there; then make_sysroot; fi
echo "setup: done; next: cmake --preset $arch && cmake --build build/$arch"
