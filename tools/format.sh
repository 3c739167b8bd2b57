#!/usr/bin/env bash
# Formats all C++ and CUDA sources by .clang-format.
#   tools/format.sh           writes them
#   tools/format.sh --check   names the files that differ and changes none; exit code 1 if there are any
# Needs clang-format 14, since other versions format some lines differently. Without it: exit code 77.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

mode=(-i)
case "${1-}" in
  "") ;;
  --check) mode=(--dry-run -Werror) ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; [[ $1 == -h || $1 == --help ]]; exit ;;
esac

tool=
for name in clang-format-14 clang-format; do
  if "$name" --version 2> /dev/null | grep -q 'version 14\.'; then tool=$name; break; fi
done
if [[ -z $tool ]]; then
  echo "format: clang-format 14 is not installed (Debian 12: apt-get install clang-format-14)" >&2
  exit 77
fi

if find mtrain plugins tools tests examples \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -P "$(nproc)" -n 40 "$tool" "${mode[@]}"; then exit 0; fi
echo "format: run tools/format.sh and commit what it writes" >&2
exit 1
