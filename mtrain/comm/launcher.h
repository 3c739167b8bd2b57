// Reads the environment variables that launchers such as mpirun, srun and torchrun set for the
// processes that they start. Thread-safe as long as nobody changes the environment.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/base/export.h"

namespace mtrain {

/// The number of ranks that were started together, including this process: by Open MPI, by MPICH
/// and others with PMI, by Slurm's srun, by torchrun and launchers with the same variables. 1
/// without a launcher.
MT_API int64_t launched_ranks();

/// The rank of this process, from the same variables; 0 without a launcher.
MT_API int64_t launched_rank();

/// The value of dist.comm for processes of this launcher: "mpi" for an MPI launcher, "tcp" if it
/// sets a rendezvous address (MASTER_ADDR and MASTER_PORT, with RANK and WORLD_SIZE as torchrun or
/// with Slurm's variables).
MT_API std::string host_comm();

}  // namespace mtrain
