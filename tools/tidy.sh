#!/usr/bin/env bash
# Runs clang-tidy 14 with the checks of .clang-tidy on the C++ sources of mtrain/, plugins/ and tools/.
#   tools/tidy.sh                 all of them: about 30 minutes of two cores
#   tools/tidy.sh FILE.cc ...     these
# Reads the compiler commands of build/ (MT_BUILD names another folder). Prints each finding; exit code 1 if there are any, 77 without
# clang-tidy 14.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

case "${1-}" in
  -*) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; [[ $1 == -h || $1 == --help ]]; exit ;;
esac
build=${MT_BUILD:-build}
tool=
for name in clang-tidy-14 clang-tidy; do
  if "$name" --version 2> /dev/null | grep -q 'version 14\.'; then tool=$name; break; fi
done
if [[ -z $tool ]]; then
  echo "tidy: clang-tidy 14 is not installed (Debian 12: apt-get install clang-tidy-14)" >&2
  exit 77
fi
if [[ ! -f $build/compile_commands.json ]]; then
  echo "tidy: no $build/compile_commands.json; configure first (cmake --preset release)" >&2
  exit 2
fi
if grep -qE '^CMAKE_UNITY_BUILD:[A-Z]+=(ON|1|TRUE)$' "$build/CMakeCache.txt"; then
  # Its commands are of joined files: a folder of our own, with the header that a build generates.
  cmake --preset release -B "$build/tidy" -DCMAKE_UNITY_BUILD=OFF > /dev/null
  build=$build/tidy
  cmake -DROOT="$PWD/mtrain" -DOUTPUT="$(realpath "$build")/generated/mtrain/plugin/abi_hash.h" -DVERSION=0 -P tools/cmake/MtrainAbiHash.cmake
fi
commands=$(mktemp -d)
trap 'rm -rf "$commands"' EXIT
# clang does not know all warning options of g++.
sed 's/ -Wno-restrict / /' "$build/compile_commands.json" > "$commands/compile_commands.json"

files=("$@")
if ((${#files[@]} == 0)); then
  # A file of kernels occurs once for each instruction-set level; clang-tidy checks it with the first command.
  mapfile -t files < <(git ls-files 'mtrain/*.cc' 'plugins/*.cc' 'tools/*.cc' | while read -r file; do
    ! grep -qF "\"file\": \"$PWD/$file\"" "$commands/compile_commands.json" || echo "$file"
  done)
fi
echo "tidy: checking ${#files[@]} files"
if printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 1 "$tool" -p "$commands" --quiet 2> /dev/null; then
  echo "tidy: no findings"
  exit 0
fi
exit 1
