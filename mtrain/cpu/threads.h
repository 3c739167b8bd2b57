// The number of threads that this process may use. Stateless; thread-safe.
#pragma once
#include <filesystem>

#include "mtrain/base/export.h"

namespace mtrain::cpu {

/// The minimum of the affinity mask and the control group's CPU quota, at least 1.
int usable_cpus();
/// Number of ranks that a launcher (Open MPI, MPICH, torchrun) started on this machine, including
/// this one; 1 without a launcher.
MT_API int launched_here();
/// OMP_NUM_THREADS if set; otherwise usable_cpus(), divided among the launched ranks
/// (launched_here()) that are bound to the same CPUs.
int default_threads();
/// The CPU quota of this process's control group, rounded up; 0 if unlimited. `root` is "/" outside
/// of tests.
int cgroup_cpu_quota(const std::filesystem::path& root);

}  // namespace mtrain::cpu
