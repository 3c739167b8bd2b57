#!/usr/bin/env bash
# at_level.sh [--lacking] MTRAIN LEVEL EMULATOR COMMAND…: runs a command with the CPU kernels of one level, through the emulator
# (`none`: there is none) where this CPU lacks it. Ends with 77, which ctest counts as skipped, where neither can, and with
# --lacking also where the CPU has the level: the command runs all levels of the CPU anyway.
set -u
lacking=0
if [[ $1 == --lacking ]]; then lacking=1; shift; fi
mtrain=$1 level=$2 emulator=$3
shift 3

refusal=$(MTRAIN_ISA=$level "$mtrain" doctor 2>&1 | grep 'MTRAIN_ISA=')
case "$refusal" in
  *'this build has no level'*)
    echo "skipped: this build has no level $level"
    exit 77
    ;;
  *'this CPU has no level'*)
    if [[ $emulator == none || $level != v4_* ]] || ! grep -qw avx512vl /proc/cpuinfo; then
      echo "skipped: this CPU has no level $level, and the emulator does not reach it from here"
      exit 77
    fi
    export LD_PRELOAD=$emulator MTRAIN_ISA=force:$level
    ;;
  *)
    if ((lacking)); then
      echo "skipped: this CPU has level $level, which the test runs without this script"
      exit 77
    fi
    export MTRAIN_ISA=$level
    ;;
esac
exec "$@"
