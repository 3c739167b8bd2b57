#include "mtrain/comm/launcher.h"

#include <algorithm>
#include <cstdlib>

namespace mtrain {

namespace {

int64_t number(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : 0;
}

/// A rank that gets the first rank's address from the environment.
bool has_rendezvous_address() {
  return std::getenv("MASTER_ADDR") && (std::getenv("RANK") || std::getenv("SLURM_PROCID"));
}

bool mpi_launched() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"})
    if (std::getenv(variable)) return true;
  return false;
}

}  // namespace

std::string host_comm() { return !mpi_launched() && has_rendezvous_address() ? "tcp" : "mpi"; }

int64_t launched_ranks() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (int64_t ranks = number(variable); ranks > 0) return ranks;
  // srun --mpi=pmix provides the number only in Slurm's variables, which a batch script also has;
  // PMIX_RANK tells the two apart.
  if (std::getenv("PMIX_RANK")) return std::max<int64_t>(1, number("SLURM_STEP_NUM_TASKS"));
  if (!has_rendezvous_address()) return 1;
  return std::max<int64_t>(
      1, std::getenv("RANK") ? number("WORLD_SIZE") : number("SLURM_STEP_NUM_TASKS"));
}

int64_t launched_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (std::getenv(variable)) return number(variable);
  if (!has_rendezvous_address()) return 0;
  return number(std::getenv("RANK") ? "RANK" : "SLURM_PROCID");
}

int64_t unconnected_tasks() {
  // A batch script has SLURM_PROCID too, but no SLURM_STEP_ID.
  if (mpi_launched() || has_rendezvous_address() || !std::getenv("SLURM_STEP_ID")) return 1;
  return std::max<int64_t>(1, number("SLURM_STEP_NUM_TASKS"));
}

}  // namespace mtrain
