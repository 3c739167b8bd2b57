#!/usr/bin/env bash
# Checks to run before a commit: rules of the tree, format, documentation, and the tests of the changed folders of mtrain/.
#   tools/precommit.sh            against HEAD
#   tools/precommit.sh main       against another commit or branch
# As a hook: ln -s ../../tools/precommit.sh .git/hooks/pre-commit
set -euo pipefail
root=$(git -C "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" rev-parse --show-toplevel)
cd "$root"

case "${1-}" in
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
if [[ ! -f build/build.ninja ]]; then
  echo "precommit: nothing is built yet: run cmake --preset release && cmake --build build" >&2
  exit 1
fi

mapfile -t folders < <(git diff --name-only "${1-HEAD}" -- mtrain tests/unit | sed -nE 's,^(tests/unit|mtrain)/([a-z_]+)/.*,\2,p' | sort -u)
targets=(mtrain)
names="tree|layers|format|local_names|docs"
for folder in "${folders[@]}"; do
  [[ -d tests/unit/$folder ]] || continue
  targets+=("test_$folder")
  names+="|$folder(\\..*)?"
done
cmake --build build --target "${targets[@]}"
ctest --test-dir build --output-on-failure --no-tests=error -j "$(nproc)" -R "^($names)\$"
