#!/bin/sh
# process_suite.sh works|fails RANKS LAUNCHER SUITE: the comm suite as a job of processes, started by `LAUNCHER -n RANKS SUITE …`: mpirun,
# or start_tcp_ranks.sh. A failing case ends its job, so each case is a separate job, and every rank prints that it passed: the status of
# a job that was ended on purpose is never 0.
part=$1 ranks=$2 launcher=$3 suite=$4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
if [ "$part" = works ]; then
  exec "$launcher" -n "$ranks" "$suite" --no-colors=true -tce="comm fails:*"
fi
output=$(mktemp) names=$(mktemp)
trap 'rm -f "$output" "$names"' EXIT
"$suite" --no-colors=true -ltc -tc="comm fails:*" | grep "^comm fails:" >"$names"
[ -s "$names" ] || { echo "no failing cases listed"; exit 1; }
bad=0
while IFS= read -r name; do
  filter=$(printf %s "$name" | tr ',' '?')  # doctest parts filters at commas
  timeout -k 10 900 "$launcher" -n "$ranks" "$suite" --no-colors=true -tc="$filter" >"$output" 2>&1 </dev/null
  status=$?
  passed=$(grep -c "this rank passed" "$output")
  ran=$(grep -c "test cases: *1 |" "$output")
  echo "$name: status $status, $passed of $ranks ranks passed"
  if [ "$passed" != "$ranks" ] || [ "$ran" != "$ranks" ] || [ "$status" != 15 ]; then
    cat "$output"
    bad=1
  fi
done <"$names"
exit $bad
