#!/bin/bash
# start_tcp_ranks.sh -n RANKS PROGRAM [WORD …]: starts ranks that connect through a port of this machine, as torchrun does. Ends with the first
# status that is not 0. The port is below those that the kernel gives to outgoing connections, and a lock keeps it from other runs of
# this script.
ranks=$2
shift 2
export MASTER_ADDR=127.0.0.1 WORLD_SIZE=$ranks
export MTRAIN_JOB_SECRET=${MTRAIN_JOB_SECRET-$(od -An -N32 -tx1 /dev/urandom | tr -d " \n")}
for try in {1..200}; do
  MASTER_PORT=$((12000 + RANDOM % 20000))
  exec {lock}> "${TMPDIR:-/tmp}/mtrain-test-port-$MASTER_PORT"
  flock --nonblock "$lock" || continue
  (: < /dev/tcp/127.0.0.1/$MASTER_PORT) 2> /dev/null || break
done
export MASTER_PORT
trap 'rm -f "${TMPDIR:-/tmp}/mtrain-test-port-$MASTER_PORT"' EXIT
for ((r = 0; r < ranks; ++r)); do
  RANK=$r LOCAL_RANK=$r "$@" {lock}>&- &
  started+=($!)
done
status=0
for child in "${started[@]}"; do
  wait "$child"
  one=$?
  ((status == 0)) && status=$one
done
exit $status
