#!/usr/bin/env bash
# Measures how much other programs on the same cores slow down a training step: with one thread and all threads, on a quiet
# machine and next to as many busy loops as there are cores. Prints tokens per second, one round per line, then medians.
#   tools/bench/busy_neighbours.sh [-m MTRAIN] [-r ROUNDS] [-n NEIGHBOURS] [RECIPE [KEY=VALUE...]]
# Without a recipe: a model of the quickstart's size on random tokens.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mtrain=$root/build/bin/mtrain rounds=3 neighbours=$(nproc)
while getopts m:r:n:h option; do
  case $option in
    m) mtrain=$OPTARG ;;
    r) rounds=$OPTARG ;;
    n) neighbours=$OPTARG ;;
    *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit $((option == "h" ? 0 : 2)) ;;
  esac
done
shift $((OPTIND - 1))
arguments=("$@")
work=$(mktemp -d)
if ((${#arguments[@]} == 0)); then  # the quickstart's model
  cat > "$work/model.yaml" << 'YAML'
model: {type: llama, layers: 3, hidden_size: 256, heads: 4, kv_heads: 2, ffn_hidden_size: 1024, seq_length: 256, tie_embeddings: true}
tokenizer: byte
dataset: mock
optimizer: {type: adamw, lr: 3e-4}
train: {steps: 100000, micro_batch_size: 4, global_batch_size: 4}
mixed_precision: auto
YAML
  arguments=("$work/model.yaml" "run.dir=$work/run")
fi

busy=()
stop_busy() {
  for id in "${busy[@]}"; do kill "$id" 2> /dev/null || true; done
  busy=()
}
trap 'stop_busy; rm -rf "$work"' EXIT
measure() { # measure NAME THREADS: appends tokens per second to the file of that name
  "$mtrain" -q bench "${arguments[@]}" "run.threads=$2" --plain --json | jq -r .tokens_per_second >> "$work/$1"
  printf '  %-14s %s tokens/s\n' "$1" "$(tail -n 1 "$work/$1")"
}
for ((round = 1; round <= rounds; ++round)); do
  echo "round $round"
  measure quiet_1 1
  measure quiet_all "$(nproc)"
  for ((i = 0; i < neighbours; ++i)); do
    (while :; do :; done) &
    busy+=($!)
  done
  measure busy_1 1
  measure busy_all "$(nproc)"
  stop_busy
done
median() { sort -n "$work/$1" | sed -n "$(((rounds + 1) / 2))p"; }
echo "medians: quiet 1 thread $(median quiet_1), all $(median quiet_all); busy 1 thread $(median busy_1), all $(median busy_all)"
