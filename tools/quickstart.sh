#!/usr/bin/env bash
# Builds mtrain from a fresh clone and trains a small model in a few minutes.
#   tools/quickstart.sh                       train on the King James Bible (public domain, from Debian)
#   tools/quickstart.sh my.txt                train on your own text
#   tools/quickstart.sh my.txt train.steps=900 optimizer.lr=1e-3
#                                             … with other settings: key=value, as for `mtrain train`
# Installs missing packages, builds, trains recipes/quickstart.yaml into runs/quickstart-<n>, and shows text that the model
# generates before and after. After a stop with Ctrl-C, the same command continues.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

text="" settings=()
for argument in "$@"; do
  case "$argument" in
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "quickstart: unknown option '$argument' (see --help)" >&2; exit 2 ;;
    [a-z]*.*=*) settings+=("$argument") ;;
    *)
      if [[ -n $text ]]; then echo "quickstart: only one text file, got '$text' and '$argument'" >&2; exit 2; fi
      text=$argument
      ;;
  esac
done

interrupted=0
trap 'interrupted=1' INT
fail() { echo "quickstart: $*" >&2; exit 1; }
step() { printf '\n[%s/5] %s\n' "$1" "$2"; }
stop_if_interrupted() { if ((interrupted)); then echo "quickstart: stopped" >&2; exit 130; fi; }

build=$root/build mtrain=$root/build/bin/mtrain recipe=$root/recipes/quickstart.yaml data=$root/data/quickstart

# Sets $source, the text file, and $prefix, the prefix of the prepared tokens.
choose_text() {
  mkdir -p "$data"
  if [[ -z $text ]]; then
    source=$data/kjv.txt prefix=$data/corpus
    return
  fi
  [[ -f $text && -r $text ]] || fail "cannot read the text file '$text'"
  local bytes
  bytes=$(stat -Lc %s "$text")
  ((bytes >= 20000)) || fail "'$text' has $bytes bytes; training needs at least 20,000, better a million"
  source=$(realpath "$text")
  prefix=$data/text-$(sha256sum < "$source" | cut -c1-12)
}

# `bible -f` prints "Ge1:1 In the beginning…", one verse per line. This removes the verse numbers and adds a blank line after each chapter.
write_bible() {
  [[ -s $source ]] && return
  bible -f 'Gen1:1-Rev22:21' < /dev/null | awk '
    { place = $1; sub(/:[0-9]+$/, "", place); sub(/^[^ ]+ +/, ""); gsub(/  +/, " "); sub(/ +$/, "") }
    place != before && before != "" { print "" }
    { print; before = place }' > "$source.new"
  [[ $(wc -l < "$source.new") -gt 32000 ]] || fail "the text of bible-kjv-text is not complete; reinstall that package"
  mv "$source.new" "$source"
}

# Validation uses whole documents, so there must be some dozens: chapters, or pieces of a fiftieth of the file.
prepare_text() {
  if [[ -s $prefix.bin && -s $prefix.idx ]]; then
    echo "already prepared: ${prefix#"$root"/}.bin"
    return
  fi
  local split=(--split-on blank-lines)
  if [[ -n $text ]]; then split=(--document-bytes "$(($(stat -Lc %s "$source") / 50))"); fi
  "$mtrain" data prepare --input "$source" --format text --output "$prefix" --tokenizer byte --append-eod --force "${split[@]}"
}

# The newest unfinished run of the same text and settings, else a new folder.
choose_run() {
  local identity n=1
  identity="$prefix ${settings[*]-}"
  while [[ -e $root/runs/quickstart-$n ]]; do
    run=$root/runs/quickstart-$n
    if [[ ! -e $run/quickstart.done && "$(cat "$run/quickstart.of" 2> /dev/null)" == "$identity" ]]; then return; fi
    n=$((n + 1))
  done
  run=$root/runs/quickstart-$n
}

# Text of the untrained model. If the recipe check fails, no folder is left.
first_sample() {
  train --quiet run.dir="$run/untrained" train.steps=0 logger.metrics=false logger.tensorboard=false
  sample "$run/untrained" > "$run/before.txt.new"
  rm -r "$run/untrained"
  echo "$prefix ${settings[*]-}" > "$run/quickstart.of"
  mv "$run/before.txt.new" "$run/before.txt"
}

with_recipe() { # with_recipe COMMAND [key=value…]
  "$mtrain" "$1" "$recipe" run.dir="$run" dataset.path="$prefix" "${split_setting[@]}" "${settings[@]}" "${@:2}"
}

train() {
  local status=0
  with_recipe train "$@" || status=$?
  if ((status == 130)) && [[ $# -eq 0 ]]; then
    echo "Stopped and saved. The same command continues from here." >&2
  fi
  if ((status)); then exit "$status"; fi
}

# sample RUN: text of its model. Bytes that are not valid text, which an untrained model produces, are removed.
sample() {
  "$mtrain" generate --from "$1" --prompt "$prompt" --max-tokens 300 --temperature 0.7 --seed 1 |
    iconv -c -f UTF-8 -t UTF-8 | LC_ALL=C tr -d '\000-\010\013-\037\177' | LC_ALL=C sed 's/\xEF\xBF\xBD//g'
}

# Only ASCII text is wrapped, because fold counts bytes.
quoted() {
  if LC_ALL=C grep -q '[^ -~]' "$1"; then cat "$1"; else fold -s -w 96 "$1"; fi | sed 's/^/  | /'
}

choose_text
if [[ -z $text ]]; then
  echo "mtrain quickstart: trains a small Llama on the bytes of the King James Bible."
else
  echo "mtrain quickstart: trains a small Llama on the bytes of $text."
fi

step 1 "missing packages"
if [[ -z $text ]]; then "$root/tools/setup.sh" --corpus; else "$root/tools/setup.sh"; fi
stop_if_interrupted
echo "all installed"

step 2 "build (the first time takes some minutes)"
configure release "$build"
compile "$build" plugins/all
stop_if_interrupted

step 3 "text"
if [[ -z $text ]]; then write_bible; fi
prepare_text
stop_if_interrupted
split_setting=()
prompt="And God said"
if [[ -n $text ]]; then
  if (($(stat -Lc %s "$source") < 2000000)); then split_setting=("dataset.split='90,10,0'"); fi
  prompt=$(awk 'NF >= 2 {print $1, $2; exit}' "$source")
fi

step 4 "train"
choose_run
with_recipe check > "$data/check.txt" || exit $?
if [[ ! -s $run/before.txt ]]; then first_sample; fi
stop_if_interrupted
echo "Before training, the model continues \"$prompt\" with:"
quoted "$run/before.txt"
echo
train
stop_if_interrupted

step 5 "result"
"$mtrain" eval --from "$run"
sample "$run" > "$run/after.txt"
touch "$run/quickstart.done"
echo "After training, it continues with:"
quoted "$run/after.txt"

here=${run#"$root"/}
cat << END

It is yours: $here
  build/bin/mtrain generate --from $here --prompt ${prompt@Q} --temperature 0.9 --seed 2
                                                   another text
  tools/quickstart.sh my.txt                       your own text
  tools/quickstart.sh train.steps=2000             a longer training
  build/bin/mtrain train --help, README.md         all the rest
END
