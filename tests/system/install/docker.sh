#!/usr/bin/env bash
# docker.sh ROOT: builds the image of examples/Dockerfile and trains in it. Exit status 77 where Docker does not run.
set -euo pipefail
root=$1 image=mtrain-test-$$
if ! docker info > /dev/null 2>&1; then
  echo "skipped: Docker does not run on this machine"
  exit 77
fi
docker build -q -f "$root/examples/Dockerfile" -t "$image" "$root" > /dev/null
trap 'docker rmi -f "$image" > /dev/null' EXIT
docker run --rm "$image" plugins ls
docker run --rm "$image" quickstart train.steps=5 scheduler.warmup_steps=0 validation.interval=0
