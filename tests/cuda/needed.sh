#!/usr/bin/env bash
# The executable and the core library depend on no CUDA, NCCL or MPI, and hold no symbol of theirs: needed.sh FILE…
set -u
breaches=0
for file in "$@"; do
  [[ -f $file ]] || { echo "no file $file"; exit 2; }
  needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  [[ -n $needed ]] || { echo "readelf shows no dependency of $file at all: is it a program?"; exit 2; }
  while read -r library; do
    echo "breach: $file needs $library"
    breaches=$((breaches + 1))
  done < <(grep -iE '^lib(cuda|cudart|cublas|cudnn|nccl|nvrtc|nvJitLink|mpi|open-(rte|pal))' <<< "$needed")
  while read -r symbol; do
    echo "breach: $file asks for $symbol"
    breaches=$((breaches + 1))
  done < <(readelf -W --dyn-syms "$file" | awk '$7 == "UND" {print $8}' | grep -E '^(cuda|cublas|cudnn|nccl|MPI_|cu[A-Z])' | head -n 5)
done
echo "$breaches breaches"
((breaches == 0))
