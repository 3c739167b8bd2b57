# Runs the steps of gpu_check and reports them. Sourced. A step is a function step_NAME (dashes as underscores) that returns 0 (right), 1
# (wrong), or 2 (not available here), and may set `figure`, one short line. Its output goes to $out/NAME.log.
names=() outcomes=() seconds=() figures=()

# Applies --quick, which skips slow steps, and --only.
wanted() {
  if [[ -n $only ]]; then [[ ,$only, == *,$1,* ]]; return; fi
  ! ((quick)) || [[ " ${slow_steps[*]} " != *" $1 "* ]]
}

take() { # take NAME
  local name=$1 begin=$SECONDS status outcome
  figure=""
  printf '  %-18s ' "$name"
  "step_${name//-/_}" > "$out/$name.log" 2>&1
  status=$?
  case $status in
    0) outcome=right ;;
    2) outcome="not available" ;;
    *) outcome=WRONG ;;
  esac
  names+=("$name") outcomes+=("$outcome") seconds+=($((SECONDS - begin))) figures+=("$figure")
  printf '%-14s %4d s  %s\n' "$outcome" "$((SECONDS - begin))" "$figure"
}

# limited SECONDS COMMAND…: status 124 if it takes longer.
limited() { timeout --kill-after=10 "$@"; }

json_text() { # json_text STRING: quoted
  local text=$1
  text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//$'\n'/\\n} text=${text//$'\t'/\\t}
  printf '"%s"' "$(LC_ALL=C tr -d '\000-\010\013-\037' <<< "$text")"
}

write_json() { # write_json FILE
  local i separator=
  {
    printf '{"device": %s, "version": %s, "quick": %s, "seconds": %d, "steps": [' "$(json_text "$device")" \
      "$(json_text "$(cat "$root/VERSION" 2> /dev/null || git -C "$root" rev-parse HEAD 2> /dev/null)")" \
      "$( ((quick)) && echo true || echo false)" "$((SECONDS - started))"
    for i in "${!names[@]}"; do
      printf '%s\n  {"name": %s, "outcome": %s, "seconds": %d, "figure": %s}' "$separator" "$(json_text "${names[i]}")" \
        "$(json_text "${outcomes[i]}")" "${seconds[i]}" "$(json_text "${figures[i]}")"
      separator=,
    done
    printf '\n], "results": {'
    separator=
    for i in "$out"/*.result.json; do
      [[ -s $i ]] || continue
      printf '%s\n  %s: ' "$separator" "$(json_text "$(basename "$i" .result.json)")"
      cat "$i"
      separator=,
    done
    printf '}}\n'
  } > "$1"
}

# The final report; its status is that of the program.
print_table() {
  local i wrong=0
  printf '\n%s, %d s\n%-18s %-14s %6s  %s\n' "$device" "$((SECONDS - started))" step outcome s figure
  for i in "${!names[@]}"; do
    printf '%-18s %-14s %6d  %s\n' "${names[i]}" "${outcomes[i]}" "${seconds[i]}" "${figures[i]}"
    if [[ ${outcomes[i]} == WRONG ]]; then wrong=$((wrong + 1)); fi
  done
  if ((wrong)); then
    printf '%d of %d steps WRONG; logs: %s\n' "$wrong" "${#names[@]}" "$out"
    for i in "${!names[@]}"; do
      if [[ ${outcomes[i]} == WRONG ]]; then printf -- '--- %s\n' "${names[i]}"; tail -n 12 "$out/${names[i]}.log"; fi
    done
    exit 1
  fi
  printf 'all %d steps right or not available; %s/gpu_check.json\n' "${#names[@]}" "$out"
  exit 0
}
