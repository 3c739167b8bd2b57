#!/bin/bash
# meet.sh -n RANKS PROGRAM [WORD …]: starts ranks that meet at a port of this machine, as torchrun does. Ends with the first status
# that is not 0.
ranks=$2
shift 2
export MASTER_ADDR=127.0.0.1 WORLD_SIZE=$ranks
for try in 1 2 3 4 5 6 7 8; do
  MASTER_PORT=$((20000 + (RANDOM * 32768 + RANDOM) % 30000))
  (: </dev/tcp/127.0.0.1/$MASTER_PORT) 2>/dev/null || break
done
export MASTER_PORT
for ((r = 0; r < ranks; ++r)); do
  RANK=$r LOCAL_RANK=$r "$@" &
  started+=($!)
done
status=0
for child in "${started[@]}"; do
  wait "$child"
  one=$?
  ((status == 0)) && status=$one
done
exit $status
