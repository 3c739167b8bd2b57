#!/usr/bin/env bash
# Sets up, builds everything and runs every test.
#   tools/test.sh                    all tests, release build in build/
#   tools/test.sh -R 'config|data'   matching tests; all arguments are passed to ctest
#   tools/test.sh --all              before a release: every parallel layout, every recipe spoilt at every key, and ranks and runs
#                                    killed at many more moments
#   MT_PRESET=asan tools/test.sh     with sanitizers (asan, tsan) or as debug build, in build/<preset>/
# MT_UNITY=0 compiles each file alone; MT_CUDA_ARCHITECTURES=90a-real compiles GPU code for these architectures only.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

all=0
case "${1-}" in
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --all)
    shift
    all=1
    export MTRAIN_PARITY=all MTRAIN_MUTATIONS=all MTRAIN_CRASH_MOMENTS=${MTRAIN_CRASH_MOMENTS:-500} MTRAIN_FAIL_MOMENTS=${MTRAIN_FAIL_MOMENTS:-50}
    ;;
esac
preset=${MT_PRESET:-release}
case "$preset" in
  release) build=$root/build ;;
  debug | asan | tsan) build=$root/build/$preset ;;
  *) echo "test: unknown MT_PRESET '$preset' (known: release debug asan tsan)" >&2; exit 2 ;;
esac

"$root/tools/setup.sh" --tests
echo "test: configuring $build"
configure "$preset" "$build"
if ((all)); then cmake -DMT_TEST_TIMEOUT=100000 "$build" > /dev/null; fi
echo "test: building (a first build takes some minutes)"
compile "$build" all
echo "test: running"
# One more than there are cores: some tests wait for time limits or disks.
exec ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(($(nproc) + 1))" "$@"
