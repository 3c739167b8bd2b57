#!/usr/bin/env bash
# Tests gpu_check with fake programs that are right, wrong, slow or refuse to run, and checks its table, JSON and status.
# self_test.sh PATH_OF_GPU_CHECK
set -u
gpu_check=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0
expect() { # expect WHAT CONDITION…
  local what=$1
  shift
  if ! "$@"; then
    echo "gpu_check's self-test: $what"
    faults=$((faults + 1))
  fi
}
has() { grep -qF -- "$2" "$1"; }

program() { # program NAME: its text from standard input
  mkdir -p "$work/bin"
  { echo '#!/usr/bin/env bash'; cat; } > "$work/bin/$1"
  chmod +x "$work/bin/$1"
}
# A doctest program with 21 cases, which all pass, or of which one fails.
doctest_program() { # doctest_program NAME STATUS [CASES]
  program "$1" << END
first=1 last=21
for argument; do
  case "\$argument" in
    --count) echo "[doctest] unskipped test cases passing the current filters: ${3:-21}"; exit ;;
    --first=*) first=\${argument#*=} ;;
    --last=*) last=\${argument#*=} ;;
  esac
done
count=\$((last - first + 1))
echo "[doctest] doctest version is \"2.4.9\""
echo "[doctest] test cases:  \$count |  \$count passed | 0 failed | 0 skipped"
echo "[doctest] assertions: \$((count * 100)) | \$((count * 100)) passed | 0 failed |"
exit $2
END
}
mtrain_program() { # mtrain_program DEVICE LOSS_ON_CUDA [LOSS_WITH_GRAPHS [LOSS_IN_FP32 [TEXT]]]
  program mtrain << END
case "\$*" in
  doctor*) echo 'ok   device   backend cuda: $1' ;;
  'verify layouts'*) echo 'error: rule device-comm: ranks exchange host memory'; exit 10 ;;
  generate*) case "\$*" in *backend=cuda*) echo "${5:-some text}" ;; *) echo 'some text' ;; esac ;;
  eval*) echo '{"loss": 2.5}' ;;
  bench*) echo '{"tokens_per_second": 12000.5, "tflops": 480.25, "mfu": 0.4856, "peak": "989 TFLOP/s, as a \\"h200\\" is sold"}' ;;
  *)
    dir=\$(tr ' ' '\n' <<< "\$*" | sed -n 's/^run.dir=//p')
    mkdir -p "\$dir"
    loss=2.5
    case "\$*" in *backend=cuda*) loss=$2 ;; esac
    case "\$*" in
      *cuda_graph.type=full_iteration*) loss=${3:-$2} ;;
      *backend=cuda*mixed_precision=fp32*) loss=${4:-2.5} ;;
    esac
    for i in 1 2 3 4 5 6; do echo "{\"step\":\$i,\"loss\":\$loss,\"step_ms\":12.5}"; done > "\$dir/metrics.jsonl" ;;
esac
END
}
check() { GPU_CHECK_PROGRAMS=$work/bin bash "$gpu_check" --out "$work/out" "$@" > "$work/said" 2>&1; }

h200='NVIDIA H200, 139.8 GiB, compute capability 9.0'
doctest_program test_cuda 0
doctest_program test_golden 0
program bench_kernels << 'END'
while (($#)); do if [[ $1 == --json ]]; then file=$2; fi; shift; done
printf '%s\n' '[{"peak_tflops": 790.5, "peak_gb_per_second": 4300.0, "kernels": [' '  {' '    "kernel": "gate, up forward",' \
  '    "us": 1,' '    "tflops": 700.25' '  }' ']}]' > "$file"
END

mtrain_program "$h200" 2.51
check --quick
status=$?
expect "status $status although all is right" test "$status" -eq 0
expect "no table line for contract" grep -qE '^contract +right +[0-9]+ +21 cases, 2100 checks' "$work/said"
expect "layouts that a rule refuses are not 'not available'" grep -qE '^layouts +not available' "$work/said"
expect "the losses are not compared" has "$work/said" 'cuda 2.51000, cpu 2.50000'
expect "graphs are not compared with steps without" grep -qE '^training-graphs +right +[0-9]+ +step 12.50000 ms' "$work/said"
expect "rates of kernels are missing" has "$work/said" 'product 790 TFLOP/s, copy 4300 GB/s; up 700 TFLOP/s'
expect "--quick ran a slow step" test ! -e "$work/out/bench-step.log"
if command -v python3 > /dev/null 2>&1; then
  expect "gpu_check.json is not valid JSON" python3 - "$work/out/gpu_check.json" << 'END'
import json, sys
seen = json.load(open(sys.argv[1]))
outcomes = {s["name"]: s["outcome"] for s in seen["steps"]}
assert seen["device"].startswith("NVIDIA H200"), seen
assert outcomes["contract"] == "right" and outcomes["layouts"] == "not available", outcomes
assert seen["results"]["kernels"][0]["peak_tflops"] == 790.5
END
fi

check --only bench-step,bench-step-fp8,bench-lora
expect "the step's speed is missing" has "$work/said" '48.6 % of 989 TFLOP/s'
expect "the speed with adapters is missing" has "$work/said" 'lora 12000 tokens/s, qlora 12000 tokens/s, dora 12000 tokens/s'

doctest_program test_cuda 1
check --only contract
status=$?
expect "status $status where a test fails" test "$status" -eq 1
expect "the failed step's log is not shown" has "$work/said" '--- contract'
doctest_program test_cuda 0 0
check --only quantized-products
status=$?
expect "status $status where no test case passes the filters" test "$status" -eq 1
doctest_program test_cuda 0

mtrain_program "$h200" 2.51 2.5100001
check --only training-graphs
status=$?
expect "status $status where graphs change a loss" test "$status" -eq 1
expect "a changed loss is not reported" has "$work/said" 'losses are not those without graphs'

mtrain_program "$h200" 2.51 2.51 2.501
check --only finetune
status=$?
expect "status $status where adapters have other losses in fp32" test "$status" -eq 1
expect "both losses of adapters are not shown" has "$work/said" 'dora 2.50100 (cpu 2.50000)'

mtrain_program "$h200" 2.51 2.51 2.5 'another text'
check --only generate
status=$?
expect "status $status where the GPU generates another text" test "$status" -eq 1
expect "another text is not reported" has "$work/said" 'other texts'

mtrain_program "$h200" 2.7
check --only training
status=$?
expect "status $status where losses differ" test "$status" -eq 1
mtrain_program "$h200" nan
check --only training
status=$?
expect "status $status where the loss is no number" test "$status" -eq 1

mtrain_program 'NVIDIA A100, 80 GiB, compute capability 8.0' 2.5
check --only bench-step-fp8
expect "FP8 is measured where there is no unit" has "$work/said" 'no FP8 unit'

mtrain_program 'this machine has no NVIDIA driver (libcuda.so.1 was not found)' 2.5
check --quick
status=$?
expect "status $status without a GPU" test "$status" -eq 77
expect "more than one line, or not why there is no GPU" grep -qx 'gpu_check: no GPU to check: this machine has no NVIDIA driver (libcuda.so.1 was not found)' "$work/said"

check --only nonsense
status=$?
expect "status $status for an unknown step" test "$status" -eq 2

if ((faults)); then echo "gpu_check's self-test: $faults faults"; exit 1; fi
echo "gpu_check's self-test: right"
