#include "mtrain/cpu/threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "mtrain/cpu/cgroup.h"
#include "mtrain/cpu/leading_number.h"

namespace mtrain::cpu {

namespace fs = std::filesystem;

namespace {

int smaller_limit(int a, int b) {
  if (a == 0) return b;
  return b == 0 ? a : std::min(a, b);
}

int affinity_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

int cgroup_cpu_quota(const fs::path& root) {
  auto cpus = cgroup_cpus(root);
  return cpus ? static_cast<int>(std::min(std::ceil(*cpus), 0x1p20)) : 0;
}

int usable_cpus() { return smaller_limit(affinity_cpus(), cgroup_cpu_quota("/")); }

int launched_here() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                           "LOCAL_WORLD_SIZE"})  // Open MPI, MPICH, torchrun
    if (const char* set = std::getenv(name))
      if (auto ranks = leading_number(set); ranks && *ranks > 0)
        return static_cast<int>(std::min<int64_t>(*ranks, 1024));
  return 1;
}

int default_threads() {
  if (const char* set = std::getenv("OMP_NUM_THREADS"))
    if (auto wanted = leading_number(set); wanted && *wanted > 0)
      return static_cast<int>(std::min<int64_t>(*wanted, 1024));
  int ranks = launched_here();
  if (ranks == 1) return usable_cpus();
  int bound = affinity_cpus(), all = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  int sharing = std::clamp((bound * ranks + all - 1) / all, 1,
                           ranks);  // number of ranks that are bound to these cores
  int quota = cgroup_cpu_quota("/");
  return std::max(1, smaller_limit(bound / sharing, quota > 0 ? std::max(1, quota / ranks) : 0));
}

}  // namespace mtrain::cpu
