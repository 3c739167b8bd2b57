// How many threads this process may use.
#pragma once
#include <filesystem>

#include "mtrain/base/export.h"

namespace mtrain::cpu {

/// The smaller of the affinity mask and the control group's CPU quota, at least 1.
int usable_cpus();
/// Ranks of an MPI launch on this machine, this one included; 1 without a launcher.
MT_API int launched_here();
/// OMP_NUM_THREADS when set; otherwise usable_cpus(), shared out among the ranks of an MPI launch
/// that are bound to them.
int default_threads();
/// The CPU quota of this process's control group rounded up, 0 when unlimited. `root` is "/"
/// outside tests.
int cgroup_cpu_quota(const std::filesystem::path& root);

}  // namespace mtrain::cpu
