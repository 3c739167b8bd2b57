#!/usr/bin/env bash
# A job of 2 nodes with 4 ranks each. Submitted again, it continues from the newest checkpoint.
#SBATCH --job-name=mtrain
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail

recipe=${1:-recipes/mine.yaml} # relative paths start at the folder from which the job is submitted
run=${2:-runs/mine}            # a folder that all nodes see

# Ranks find each other at a port of the first node, and prove by the secret that they belong to this job.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
MTRAIN_JOB_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export MASTER_ADDR MASTER_PORT MTRAIN_JOB_SECRET
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK

# 128 + a signal: stopped after saving. Before its time limit Slurm sends SIGUSR1 (see --signal), and the job goes back into the queue.
status=0
# srun takes neither from sbatch: the cores of each rank (since Slurm 22.05), and -K, which ends all ranks when one fails.
srun -K --cpus-per-task="$SLURM_CPUS_PER_TASK" mtrain "$recipe" run.dir="$run" dist.comm=tcp dist.nproc="$SLURM_NTASKS" || status=$?
if ((status == 128 + $(kill -l USR1))); then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
