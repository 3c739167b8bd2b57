// What a launcher such as mpirun or srun tells the processes that it starts. Reads the environment;
// thread-safe as long as nobody changes it.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/base/export.h"

namespace mtrain {

/// How many ranks were started together with this process: by Open MPI, by MPICH and others over
/// PMI, by Slurm's srun, by torchrun and whoever speaks like it. 1 without a launcher.
MT_API int64_t launched_ranks();

/// Which of them this process is, by the same sources; 0 without a launcher.
MT_API int64_t launched_rank();

/// How processes of this launcher exchange host memory: "mpi" where it is MPI's, "tcp" where it
/// tells a place to meet (MASTER_ADDR, MASTER_PORT with RANK and WORLD_SIZE as torchrun, or with
/// Slurm's numbers).
MT_API std::string host_comm();

}  // namespace mtrain
