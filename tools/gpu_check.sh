#!/usr/bin/env bash
# Checks mtrain on this machine's GPU: compares it with the CPU, then measures its speed. Takes about ten minutes.
#   tools/gpu_check.sh                 everything, from the build tree (build/) or from the bundle that contains this script
#   tools/gpu_check.sh --quick         only steps that take a minute or two together
#   tools/gpu_check.sh --only WORDS    steps with these names: 'contract,bench-kernels'; --list names them
#   tools/gpu_check.sh --out DIR       where logs and gpu_check.json go (default: gpu_check-out)
#   tools/gpu_check.sh --self-test     test this script itself, with fake programs; needs no GPU
# Prints a table at the end. Exit status: 0 all right, 1 something is wrong, 77 no GPU (only the self-test and tests without a GPU ran).
set -u
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd -P)
if [[ -f $here/env.sh ]]; then # a bundle
  bundle=$here
  source "$bundle/env.sh"
  root=$bundle programs=${GPU_CHECK_PROGRAMS:-$bundle/tests/bin} mtrain=${GPU_CHECK_PROGRAMS:-$bundle/bin}/mtrain recipes=$bundle/recipes
else
  root=$(dirname "$here") recipes=$(dirname "$here")/recipes
  programs=${GPU_CHECK_PROGRAMS:-$root/build/bin} mtrain=${GPU_CHECK_PROGRAMS:-$root/build/bin}/mtrain
fi
source "$root/tools/gpu_check/steps.sh"
source "$root/tools/gpu_check/report.sh"

quick=0 only="" out=$PWD/gpu_check-out list=0 self_test=0
while (($#)); do
  case "$1" in
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) quick=1; shift ;;
    --only) only=${2-}; shift 2 ;;
    --out) out=$(realpath -m "${2-}"); shift 2 ;;
    --list) list=1; shift ;;
    --self-test) self_test=1; shift ;;
    *) echo "gpu_check: unknown option '$1' (see --help)" >&2; exit 2 ;;
  esac
done

if ((list)); then printf '%s\n' "${all_steps[@]}"; exit 0; fi
if ((self_test)); then exec bash "$root/tools/gpu_check/self_test.sh" "${BASH_SOURCE[0]}"; fi
for word in ${only//,/ }; do
  [[ " ${all_steps[*]} " == *" $word "* ]] || { echo "gpu_check: there is no step '$word'; there are: ${all_steps[*]}" >&2; exit 2; }
done
[[ -x $mtrain ]] || { echo "gpu_check: no $mtrain: build first, or run it from a bundle" >&2; exit 2; }
mkdir -p "$out" || exit 2
work=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$work"' EXIT

found=$("$mtrain" doctor 2>&1 | sed -n 's/^[a-zA-Z]* *device *backend cuda: //p' | head -n 1)
if [[ $found != *"compute capability"* ]]; then
  echo "gpu_check: no GPU to check: ${found:-this build has no CUDA backend}"
  status=77
  if [[ -z ${GPU_CHECK_PROGRAMS-} ]]; then
    bash "$root/tools/gpu_check/self_test.sh" "${BASH_SOURCE[0]}" || status=1
    missing=$(ldd "$programs/test_cuda_gpu_less" 2> /dev/null | sed -n 's/^[[:space:]]*\(.*\) => not found/\1/p' | paste -sd ' ')
    if [[ -n $missing ]]; then
      echo "the tests without a GPU need these libraries: $missing (install CUDA 13, or \`pip install\` its nvidia-* wheels)"
    elif [[ -x $programs/test_cuda_gpu_less ]]; then
      "$programs/test_cuda_gpu_less" > "$out/gpu_less.log" 2>&1 && echo "tests without a GPU: right" || { status=1; tail -n 20 "$out/gpu_less.log"; }
    fi
  fi
  exit "$status"
fi
device=$found
architecture=$(sed -n 's/.*compute capability \([0-9]*\)\.\([0-9]*\).*/\1\2/p' <<< "$device")
echo "gpu_check: $device"

started=$SECONDS
for name in "${all_steps[@]}"; do
  wanted "$name" && take "$name"
done
write_json "$out/gpu_check.json"
print_table
