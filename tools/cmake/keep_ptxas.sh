#!/usr/bin/env bash
# Launcher of nvcc: runs the command and writes ptxas's output for each kernel to OBJECT.ptxas; other output is passed through.
set -u
object=
previous=
for word in "$@"; do
  [[ $previous == -o ]] && object=$word
  previous=$word
done
words=$("$@" 2>&1)
status=$?
if [[ -n $object && $object == *.o ]]; then
  grep -E '^(ptxas info|    [0-9]+ bytes stack frame)' <<< "$words" > "$object.ptxas"
  words=$(grep -vE '^(ptxas info|    [0-9]+ bytes stack frame|[[:space:]]*$)' <<< "$words")
fi
[[ -n $words ]] && printf '%s\n' "$words" >&2
exit "$status"
