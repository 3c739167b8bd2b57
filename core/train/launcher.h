// What a launcher such as mpirun or srun tells the processes that it starts. Reads the environment; thread-safe as long as
// nobody changes it.
#pragma once
#include <cstdint>

#include "mtrain/base/export.h"

namespace mtrain {

/// How many ranks were started together with this process: by Open MPI, by MPICH and others over PMI, by Slurm's srun. 1 without
/// a launcher.
MT_API int64_t launched_ranks();

}  // namespace mtrain
