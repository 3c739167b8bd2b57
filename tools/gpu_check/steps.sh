# The steps of gpu_check, in order: first correctness, then speed. Sourced; report.sh defines what a step is.
all_steps=(contract quantized-products golden layouts training training-graphs optimizers models finetune generate training-fp8 sanitizer
  bench-kernels bench-step bench-step-fp8 bench-lora bench-torch bench-torch-step bench-peft)
slow_steps=(sanitizer training-fp8 bench-step bench-step-fp8 bench-lora bench-torch bench-torch-step bench-peft)

# doctest PROGRAM SECONDS [ARGUMENTS]: runs the test cases that pass the filters, divided among up to eight processes; 2 if the
# program was not built, 1 if no case passes the filters.
doctest() {
  local program=$programs/$1 limit=$2 status=0 cases processes i pids=() logs=()
  shift 2
  [[ -x $program ]] || { figure="no $(basename "$program")"; return 2; }
  cases=$("$program" --count "$@" | sed -n 's/^\[doctest\] unskipped test cases passing the current filters: *//p')
  ((cases > 0)) || { figure="no test case passes the filters: $*"; return 1; }
  processes=$(nproc)
  processes=$((processes < 8 ? processes : 8)) processes=$((processes < cases ? processes : cases))
  rm -f "$work"/doctest.*.log
  for ((i = 0; i < processes; ++i)); do # in a fixed random order, so that slow neighbours do not share a process
    logs+=("$work/doctest.$i.log")
    limited "$limit" "$program" --no-colors=1 --duration=1 --order-by=rand --rand-seed=1 "$@" \
      --first=$((cases * i / processes + 1)) --last=$((cases * (i + 1) / processes)) > "${logs[i]}" 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || status=$?; done
  cat "${logs[@]}"
  figure="$cases cases, $(cat "${logs[@]}" | awk '/^\[doctest\] assertions:/ {checks += $3} END {print checks + 0}') checks"
  if ((status == 124)); then figure="not done within $limit s"; fi
  ((status == 0))
}

# Compares every op of the contract and every kernel with its definition and the CPU's, in all types.
step_contract() { doctest test_cuda 150 --source-file-exclude='*training_test*,*quantized_*'; }
step_quantized_products() { doctest test_cuda 90 --source-file='*quantized_*'; }
# Compares with values of other implementations.
step_golden() { MTRAIN_TEST_BACKEND=cuda doctest test_golden 90; }

# Layouts over thread ranks that share this GPU; reports if the rules of this build refuse that.
step_layouts() {
  local status only=(--pairwise)
  if ((quick)); then only=(--only dp2); fi
  limited 90 "$mtrain" verify layouts "$recipes/quickstart.yaml" dist.backend=cuda "${made_up[@]}" --ranks 2 --steps 3 "${only[@]}" \
    --certificate "$out/layouts.result.json" > "$work/layouts.log" 2>&1
  status=$?
  cat "$work/layouts.log"
  if grep -qE 'device-comm|exchange host memory|not available' "$work/layouts.log"; then
    figure="this build does not support several ranks on one GPU"
    return 2
  fi
  figure=$(grep -E 'layouts?' "$work/layouts.log" | tail -n 1 | cut -c1-70)
  ((status == 0))
}

# The quickstart on synthetic tokens, if its text does not exist.
made_up=('~dataset.path' '~dataset.split' dataset.type=mock)
# train BACKEND NAME [SETTINGS]: the model of `recipe` (quickstart); its losses are in $work/NAME/metrics.jsonl.
recipe=quickstart
train() {
  local backend=$1 name=$2
  shift 2
  "$mtrain" "$recipes/$recipe.yaml" -q "dist.backend=$backend" run.dir="$work/$name" checkpoint.interval=0 "${text[@]}" "$@"
}
# have_text: whether the quickstart's text is prepared.
have_text() { [[ -s $root/data/quickstart/corpus.bin ]]; }
choose_text() {
  if have_text; then text=("dataset.path=$root/data/quickstart/corpus"); else text=("${made_up[@]}"); fi
}
# last_loss NAME [KEY]: the mean of the last five values of KEY ("loss"), so that a single batch does not dominate.
last_loss() {
  sed -n "s/.*\"${2:-loss}\":\([0-9.eE+-]*\).*/\1/p" "$work/$1/metrics.jsonl" | tail -n 5 |
    awk '{sum += $1; ++n} END {if (n) printf "%.5f", sum / n}'
}
# close A B SHARE: whether two losses are within a share of each other.
close() { awk -v a="$1" -v b="$2" -v share="$3" 'BEGIN {d = a - b; if (d < 0) d = -d; exit !(a > 0 && b > 0 && d <= share * b)}'; }

step_training() {
  local steps=400 cpu gpu
  if ((quick)); then steps=60; fi
  choose_text
  train cpu cpu train.steps=$steps scheduler.warmup_steps=20 validation.interval=0 > "$work/cpu.log" 2>&1 &
  local other=$!
  train cuda gpu train.steps=$steps scheduler.warmup_steps=20 validation.interval=0 || return 1
  wait "$other" || { cat "$work/cpu.log"; return 1; }
  cpu=$(last_loss cpu) gpu=$(last_loss gpu)
  figure="loss after $steps steps: cuda $gpu, cpu $cpu"
  close "$gpu" "$cpu" 0.01
}

# CUDA graphs must not change results, only the time of a step.
all_losses() { sed -n 's/.*"loss":\([0-9.eE+-]*\).*/\1/p' "$work/$1/metrics.jsonl"; }
step_training_graphs() {
  local name count
  choose_text
  for name in plain graphs; do
    train cuda "$name" train.steps=60 scheduler.warmup_steps=20 validation.interval=0 \
      "cuda_graph.type=$([[ $name == graphs ]] && echo full_iteration || echo none)" || return 1
  done
  count=$(all_losses graphs | wc -l)
  figure="step $(last_loss graphs step_ms) ms in $(last_loss graphs graphs) graphs, $(last_loss plain step_ms) ms without"
  if ((count == 0)) || ! diff <(all_losses plain) <(all_losses graphs); then
    figure="losses are not those without graphs"
    return 1
  fi
}

# In fp32, the losses of the first steps are the CPU's.
fp32=(mixed_precision=fp32 train.steps=8 validation.interval=0 scheduler.warmup_steps=0)
# on_both NAME SETTINGS: trains on both backends, compares, and appends the loss to `figure`.
on_both() {
  local name=$1 other
  shift
  train cpu "$name-cpu" "${fp32[@]}" "$@" > "$work/cpu.log" 2>&1 &
  other=$!
  train cuda "$name-cuda" "${fp32[@]}" "$@" || { wait "$other"; return 1; }
  wait "$other" || { cat "$work/cpu.log"; return 1; }
  figure+="${figure:+, }$name $(last_loss "$name-cuda")"
  same_losses "$name" 1e-4 || { figure+=" (cpu $(last_loss "$name-cpu"))"; return 1; }
}

# Optimizers other than AdamW.
step_optimizers() {
  local name wrong=0
  choose_text
  for name in sgd lion muon; do
    on_both "$name" "optimizer=$name" || wrong=1
  done
  return $wrong
}

# Models of other kinds.
step_models() {
  local recipe name wrong=0
  have_text || { figure="needs the quickstart's text"; return 2; }
  choose_text
  for name in moe bert t5 spans; do
    recipe=quickstart_$name
    on_both "$name" || wrong=1
  done
  return $wrong
}

# Adapters, quantized base weights, preferences, scores of texts and of words, and distillation.
pairs() { # pairs FILE: 64 made-up pairs of answers
  local i
  for ((i = 0; i < 64; ++i)); do
    printf '{"prompt": "number %d:", "chosen": " %d, then %d", "rejected": " %d"}\n' "$i" "$((i * 7 % 31))" "$((i + 1))" "$((i * 5 % 17))"
  done > "$1"
}
tags() { # tags FILE: 64 made-up sentences with labels
  local i
  for ((i = 0; i < 64; ++i)); do
    printf '{"tokens": ["call", "Ada%d", "B%d", "now"], "labels": ["O", "B-NAME", "I-NAME", "O"]}\n' "$i" "$((i * 7 % 31))"
  done > "$1"
}
step_finetune() {
  local name settings wrong=0
  local whole=(dataset.split=100,0,0 validation.steps=0)
  local -A variants=(
    [lora]='peft=lora' [dora]='peft=dora' [qlora]='peft=qlora' [int8]='peft=qlora peft.base=int8 peft.double_quant=false'
    [dpo]='objective=dpo' [dpo-lora]='objective=dpo peft=lora' [kto]='objective=kto' [kto-lora]='objective=kto peft=lora'
    [reward]='objective=reward model.labels=1'
    [tags]='objective=token_classification model.labels=3 model.labels_of=token' [distill]='' [distill-top]='')
  pairs "$work/pairs.jsonl"
  tags "$work/tags.jsonl"
  choose_text
  train cpu base "${fp32[@]}" checkpoint.interval=8 || return 1
  for name in lora dora qlora int8 distill distill-top dpo dpo-lora kto kto-lora reward tags; do
    settings=(${variants[$name]} "model.init_from=$work/base")
    case $name in
      distill) settings=(objective=distillation "objective.teacher=$work/base" model.layers=2) ;;
      distill-top) settings=(objective=distillation "objective.teacher=$work/base" model.layers=2 objective.top_k=16) ;;
      tags)
        settings+=(dataset=token_classification "dataset.path=$work/tags.jsonl" 'dataset.labels=[O,B-NAME,I-NAME]' "${whole[@]}")
        text=()
        ;;
      dpo* | kto* | reward)
        settings+=(dataset=preference "dataset.path=$work/pairs.jsonl" "${whole[@]}")
        text=()
        ;;
    esac
    on_both "$name" "${settings[@]}" || wrong=1
  done
  return $wrong
}
# same_losses NAME SHARE: whether every step's losses on the two backends are within a share of each other (below 1: of 1).
same_losses() {
  local count
  count=$(all_losses "$1-cuda" | wc -l)
  ((count > 0)) && ((count == $(all_losses "$1-cpu" | wc -l))) || return 1
  paste <(all_losses "$1-cuda") <(all_losses "$1-cpu") |
    awk -v share="$2" '{d = $1 - $2; if (d < 0) d = -d; if (!(d <= share * ($2 > 1 ? $2 : 1))) wrong = 1} END {exit wrong}'
}

# Greedy continuations and the validation loss of a saved model are the CPU's.
step_generate() {
  local backend
  choose_text
  train cpu saved "${fp32[@]}" train.steps=40 checkpoint.interval=40 || return 1
  for backend in cpu cuda; do
    "$mtrain" generate --from "$work/saved" --prompt 'And he said' --max-tokens 48 --temperature 0 "dist.backend=$backend" > "$work/text-$backend" || return 1
    "$mtrain" eval --from "$work/saved" "dist.backend=$backend" validation.steps=4 --json > "$work/eval-$backend" || return 1
  done
  figure="loss of eval: cuda $(json_number "$work/eval-cuda" loss), cpu $(json_number "$work/eval-cpu" loss)"
  cat "$work"/text-*
  if ! diff "$work/text-cpu" "$work/text-cuda"; then figure+="; other texts"; return 1; fi
  close "$(json_number "$work/eval-cuda" loss)" "$(json_number "$work/eval-cpu" loss)" 1e-4
}

# FP8 on the device's unit, if it has one: the loss must be within 2 % of bf16's.
step_training_fp8() {
  local recipe plain loss all=0
  choose_text
  train cuda bf16 train.steps=400 scheduler.warmup_steps=20 validation.interval=0 || return 1
  plain=$(last_loss bf16)
  figure="bf16 $plain"
  for recipe in bf16_fp8_current bf16_fp8_delayed bf16_fp8_blockwise bf16_mxfp8 bf16_nvfp4; do
    train cuda "$recipe" train.steps=400 scheduler.warmup_steps=20 validation.interval=0 "mixed_precision=$recipe" \
      mixed_precision.first_bf16_layers=1 mixed_precision.last_bf16_layers=1 || return 1
    loss=$(last_loss "$recipe")
    figure+=", ${recipe#bf16_} $loss"
    close "$loss" "$plain" 0.02 || all=1
  done
  return $all
}

step_sanitizer() {
  local tool sanitizer status=0
  sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer 2> /dev/null | head -n 1)
  [[ -n $sanitizer ]] || { figure="no compute-sanitizer here"; return 2; }
  [[ -x $programs/test_cuda ]] || { figure="no test_cuda"; return 2; }
  for tool in memcheck racecheck initcheck; do
    limited 60 "$sanitizer" --tool "$tool" --error-exitcode 9 "$programs/test_cuda" --no-colors=1 \
      --test-case='dropout draws*,conversions have*,*Hadamard*,a bf16 product*' > "$work/sanitizer.log" 2>&1 || status=1
    cat "$work/sanitizer.log"
    if grep -q 'Device not supported' "$work/sanitizer.log"; then
      figure="compute-sanitizer does not support this device here"
      return 2
    fi
    figure+="${figure:+, }$tool: $(sed -n 's/.*ERROR SUMMARY: \([0-9]* error[s]*\).*/\1/p; s/.*RACECHECK SUMMARY: \([0-9]* hazards\).*/\1/p' "$work/sanitizer.log" | tail -n 1)"
  done
  return $status
}

# json_number FILE KEY: the first number of that key.
json_number() { sed -n "s/.*\"$2\": *\([0-9.eE+-]*\).*/\1/p" "$1" | head -n 1; }
of_kernel() { tr -d '\n' < "$1" | tr '{' '\n' | sed -n "s/.*\"kernel\": *\"$2\".*\"$3\": *\([0-9.eE+-]*\).*/\1/p" | head -n 1; }

step_bench_kernels() {
  local to=$out/kernels.result.json
  [[ -x $programs/bench_kernels ]] || { figure="no bench_kernels"; return 2; }
  limited 100 "$programs/bench_kernels" --backend cuda --model "$( ((quick)) && echo quickstart || echo llama8b)" --dtype bf16 --json "$to" || return 1
  figure=$(printf 'product %.0f TFLOP/s, copy %.0f GB/s; up %.0f TFLOP/s, attention %.0f, back %.0f, adamw %.0f GB/s' \
    "$(json_number "$to" peak_tflops)" "$(json_number "$to" peak_gb_per_second)" "$(of_kernel "$to" 'gate, up forward' tflops)" \
    "$(of_kernel "$to" attention tflops)" "$(of_kernel "$to" 'attention backward' tflops)" "$(of_kernel "$to" adamw gb_per_second)")
}

# The number of blocks of the slice that fit: 4.7 GiB each, and 28 GiB for the embedding, the head, activations and workspaces.
slice_layers() {
  sed -n 's/.*, \([0-9.]*\) GiB, compute.*/\1/p' <<< "$device" | awk '{n = int(($1 - 28) / 4.7); if (n < 1) n = 1; if (n > 22) n = 22; print n}'
}
bench_step() { # bench_step RECIPE NAME
  local to=$out/$2.result.json
  limited 110 "$mtrain" bench "$1" dist.backend=cuda model.layers="$(slice_layers)" --steps 5 --warmup 2 --plain --json > "$to.part" || { cat "$to.part"; rm -f "$to.part"; return 1; }
  mv "$to.part" "$to"
  figure=$(printf '%.0f tokens/s, %.0f TFLOP/s, %.1f %% of %s' "$(json_number "$to" tokens_per_second)" "$(json_number "$to" tflops)" \
    "$(json_number "$to" mfu | awk '{print 100 * $1}')" "$(sed -n 's/.*"peak": *"\([^"]*\)".*/\1/p' "$to" | head -n 1), $(slice_layers) blocks")
}
step_bench_step() { bench_step bench_llama8b_slice step; }
step_bench_step_fp8() {
  if ((architecture < 89)); then figure="the device has no FP8 unit"; return 2; fi
  bench_step bench_llama8b_slice_fp8 step_fp8
}

# Adapters on the slice with frozen weights in bf16, in 4 bits, and DoRA.
step_bench_lora() {
  local variant to layers
  layers=$(slice_layers)
  for variant in lora qlora dora; do
    to=$out/$variant.result.json
    limited 70 "$mtrain" bench bench_llama8b_slice "peft=$variant" dist.backend=cuda model.layers="$layers" --steps 5 --warmup 2 --plain --json \
      > "$to.part" || { cat "$to.part"; rm -f "$to.part"; return 1; }
    mv "$to.part" "$to"
    figure+="${figure:+, }$variant $(printf '%.0f tokens/s' "$(json_number "$to" tokens_per_second)")"
  done
}

# PyTorch on the same shapes, if a Python with PyTorch is installed.
torch_python() {
  local python
  for python in python3 /opt/*/.venv/bin/python3 "${VIRTUAL_ENV-}/bin/python3"; do
    if env -u LD_LIBRARY_PATH "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' > /dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
}
step_bench_torch() {
  local python
  python=$(torch_python)
  [[ -n $python ]] || { figure="no Python with PyTorch and CUDA"; return 2; }
  [[ -s $out/kernels.result.json ]] || { figure="needs bench-kernels"; return 2; }
  limited 90 env -u LD_LIBRARY_PATH "$python" "$root/tools/bench/torch_kernels.py" "$out/kernels.result.json" --json "$out/torch.result.json" || return 1
  figure=$(tail -n 1 "$out/bench-torch.log" | cut -c1-90)
}
# rate_of_steps FILE: tokens per second, from the JSON of torch_step.py or peft_step.py.
rate_of_steps() {
  tr -d '[]' < "$1" | sed -n 's/.*"step_seconds": \([^"]*\), "losses".*"tokens_per_step": \([0-9]*\).*/\2 \1/p' |
    awk '{gsub(",", " "); n = split($0, s, " "); for (i = 2; i <= n; ++i) sum += s[i]; printf "%.0f tokens/s", s[1] * (n - 1) / sum}'
}
# The slice's training step: eager with fused attention, then compiled.
step_bench_torch_step() {
  local python variant to failed=0
  python=$(torch_python)
  [[ -n $python ]] || { figure="no Python with PyTorch and CUDA"; return 2; }
  for variant in sdpa-tuned compile-tuned; do
    to=$out/torch-$variant.result.json
    limited 90 env -u LD_LIBRARY_PATH "$python" "$root/tools/bench/torch_step.py" '{"variant": "'$variant'", "family": "llama", "layers": '"$(slice_layers)"',
      "hidden": 4096, "heads": 32, "groups": 8, "ffn": 14336, "vocab": 128256, "batch": 1, "seq": 8192, "tied": false, "dtype": "bf16",
      "steps": 5, "threads": 8, "device": "cuda"}' > "$to.part" || { failed=1; figure+="${figure:+, }$variant failed"; continue; }
    mv "$to.part" "$to"
    figure+="${figure:+, }$variant $(rate_of_steps "$to")"
  done
  return $failed
}

# The slice with LoRA of rank 32 in transformers and peft, with frozen weights in bf16: eager, then compiled.
step_bench_peft() {
  local python variant to failed=0
  python=$(torch_python)
  [[ -n $python ]] && env -u LD_LIBRARY_PATH "$python" -c 'import transformers, peft' || { figure="no Python with PyTorch, transformers and peft"; return 2; }
  for variant in sdpa-tuned compile-tuned; do
    to=$out/peft-$variant.result.json
    limited 150 env -u LD_LIBRARY_PATH "$python" "$root/tools/bench/peft_step.py" '{"variant": "'$variant'", "layers": '"$(slice_layers)"',
      "hidden": 4096, "heads": 32, "groups": 8, "ffn": 14336, "vocab": 128256, "batch": 1, "seq": 8192, "tied": false, "dtype": "bf16", "rank": 32,
      "steps": 5, "threads": 8, "device": "cuda"}' > "$to.part" || { failed=1; figure+="${figure:+, }$variant failed"; continue; }
    mv "$to.part" "$to"
    figure+="${figure:+, }$variant $(rate_of_steps "$to")"
  done
  return $failed
}
