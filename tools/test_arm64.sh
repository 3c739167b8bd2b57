#!/usr/bin/env bash
# Builds mtrain for Arm64 on this x86-64 Debian machine and tests it in an emulator.
#   tools/test_arm64.sh              tests, then a training run that moves from one processor to the other
#   tools/test_arm64.sh --training   only the training run
#   tools/test_arm64.sh --all        also the whole kernel contract
# Builds in build/arm64 and, for the comparison, in build/.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tests=1 all=0
for argument in "$@"; do
  case "$argument" in
    --training) tests=0 ;;
    --all) all=1 ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test_arm64: unknown option '$argument' (known: --training --all)" >&2; exit 2 ;;
  esac
done
fail() { echo "test_arm64: $*" >&2; exit 1; }
cross=$root/build/arm64 native=$root/build
plugins=(plugin_model_llama plugin_model_gpt2 plugin_model_bert plugin_dataset_gpt plugin_dataset_mock plugin_optimizer_adamw
  plugin_tokenizer_byte plugin_tokenizer_hf)
programs=(base config chat tensor kernel plugin cpu comm autograd optim tokenize checkpoint golden contract)

"$root/tools/setup.sh" --cross arm64
echo "test_arm64: building $cross"
configure arm64 "$cross"
targets=(mtrain "${plugins[@]}")
if ((tests)); then targets+=("${programs[@]/#/test_}"); fi
compile "$cross" "${targets[@]}"
echo "test_arm64: building $native"
[[ -f $native/CMakeCache.txt ]] || configure release "$native"
compile "$native" mtrain plugin_model_llama plugin_dataset_gpt plugin_optimizer_adamw plugin_tokenizer_byte

emulator=("$(sed -n 's/^MT_QEMU:FILEPATH=//p' "$cross/CMakeCache.txt")" -cpu neoverse-n1
  -L "$(sed -n 's/^MT_SYSROOT:PATH=//p' "$cross/CMakeCache.txt")")
export MTRAIN_TEST_EMULATOR="${emulator[*]}"  # for tests that start themselves
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arm() { "${emulator[@]}" "$cross/bin/mtrain" -q "$@"; }
x86() { "$native/bin/mtrain" -q "$@"; }

failed=()
# run_test NAME ARGUMENT…: one test program in the emulator; its last line counts what ran.
run_test() {
  local name=$1 log=$work/$1.log began=$SECONDS
  shift
  if "${emulator[@]}" "$cross/bin/test_$name" "$@" > "$log" 2>&1; then
    printf '  %-11s passed, %4d s: %s\n' "$name" $((SECONDS - began)) "$(grep -ao 'test cases: .*' "$log" | tail -n 1)"
  else
    printf '  %-11s FAILED\n' "$name"
    tail -n 40 "$log" | sed 's/^/    /'
    failed+=("$name")
  fi
}

# losses FOLDER: "step loss", each step once: of a step that was repeated after a stop, the last value counts.
losses() {
  sed -nE 's/^\{"step": ?([0-9]+),.*"loss": ?([-+0-9.e]+)[,}].*/\1 \2/p' "$1/metrics.jsonl" |
    awk '{loss[$1] = $2} END {for (step in loss) print step, loss[step]}' | sort -n
}
# close_losses WHAT A B STEPS BOUND: fails unless both have STEPS losses that differ by BOUND times their size at most.
close_losses() {
  join <(losses "$2" | sort -k1,1) <(losses "$3" | sort -k1,1) | awk -v what="$1" -v steps="$4" -v bound="$5" '
    {d = ($2 - $3) / $2; if (d < 0) d = -d; if (d > worst) worst = d; ++n}
    {if (n == 1 || $1 + 0 > final) {final = $1; ends = $2 " and " $3}}
    END {
      printf "  %s: %d steps, last losses %s, largest difference %.2g of the loss (bound %g)\n", what, n, ends, worst, bound
      exit !(n == steps && worst <= bound)
    }' || failed+=("$1")
}

training() {
  cd "$work"
  cat > tiny.yaml <<'YAML'
defaults: [{mixed_precision: fp32}, _self_]
model: {type: llama, layers: 2, hidden_size: 64, heads: 4, kv_heads: 2, ffn_hidden_size: 128, seq_length: 64, tie_embeddings: true}
tokenizer: byte
dataset: {type: gpt, path: text, split: "6,1,0"}
train: {steps: 20, micro_batch_size: 2, global_batch_size: 4}
optimizer: {type: adamw, lr: 2e-3, weight_decay: 0.01}
scheduler: {type: linear, warmup_steps: 4, min_lr: 1e-5}
checkpoint: {interval: 10}
YAML
  local prepare=(data prepare --input "$root/docs/ARCHITECTURE.md" --tokenizer byte --append-eod --split-on blank-lines)
  arm "${prepare[@]}" --output text
  x86 "${prepare[@]}" --output text_x86
  cmp text.bin text_x86.bin && cmp text.idx text_x86.idx || failed+=("data files")
  arm tiny.yaml run.dir=on_arm
  x86 tiny.yaml run.dir=on_x86
  close_losses "arm64 and x86-64" on_arm on_x86 20 1e-5
  change_over arm x86
  change_over x86 arm
  arm tiny.yaml run.dir=again
  if [[ "$(losses again)" == "$(losses on_arm)" ]]; then
    echo "  arm64 twice: the same losses to the last digit"
  else
    failed+=("arm64 twice")
  fi
}

# change_over FROM TO: the first ten steps of one processor, the last ten of the other.
change_over() {
  local run=from_$1_to_$2
  cp -r "on_$1" "$run"
  rm -r "$run"/checkpoints/*20
  sed -i '11,$d' "$run/metrics.jsonl"
  "$2" tiny.yaml run.dir="$run"
  # Records contain times, so those of repeated steps differ.
  cmp <(head -n 10 "on_$1/metrics.jsonl") <(head -n 10 "$run/metrics.jsonl") || failed+=("$2 did not continue from step 10 of $1")
  close_losses "$1 up to step 10, then $2" "$run" on_x86 20 1e-5
}

if ((tests)); then
  echo "test_arm64: tests in the emulator"
  for name in "${programs[@]}"; do
    part=()
    if [[ $name == contract ]] && ((!all)); then part=(--test-case='*linear*'); fi
    run_test "$name" "${part[@]}"
  done
fi
echo "test_arm64: training"
training
if ((${#failed[@]})); then fail "failed: ${failed[*]}"; fi
echo "test_arm64: all passed"
