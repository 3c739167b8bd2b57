// Reads the environment variables that launchers such as mpirun, srun and torchrun set for the
// processes that they start. Thread-safe as long as nobody changes the environment.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/base/export.h"

namespace mtrain {

/// The number of ranks that were started together, including this process: by Open MPI, by MPICH
/// and others with PMI, by `srun --mpi=pmix`, by torchrun and launchers with the same variables, or
/// by srun with MASTER_ADDR set. 1 without a launcher.
MT_API int64_t launched_ranks();

/// The rank of this process, from the same variables; 0 without a launcher.
MT_API int64_t launched_rank();

/// The value of dist.comm for processes of this launcher: "tcp" if the environment has a rendezvous
/// address (MASTER_ADDR, with torchrun's RANK or Slurm's SLURM_PROCID) and the launcher is not an
/// MPI launcher; otherwise "mpi", also without a launcher.
MT_API std::string host_comm();

/// The number of tasks that srun started with this process and that cannot connect, since neither
/// MPI nor MASTER_ADDR connects them; 1 if srun did not start this process or its tasks connect.
MT_API int64_t unconnected_tasks();

}  // namespace mtrain
