#include "mtrain/cpu/threads.h"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

namespace mtrain::cpu {

namespace fs = std::filesystem;

namespace {

std::optional<long> number(const std::string& text) {
  long value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::string first_word(const fs::path& path, int index = 0) {
  std::ifstream in(path);
  std::string word;
  for (int i = 0; i <= index; ++i)
    if (!(in >> word)) return {};
  return word;
}

int cpus_for(std::optional<long> quota, std::optional<long> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
  return static_cast<int>(std::min((*quota + *period - 1) / *period, 1L << 20));
}

int smaller_limit(int a, int b) {
  if (a == 0) return b;
  return b == 0 ? a : std::min(a, b);
}

/// A group's limit is the smallest of its own and its ancestors'.
template <class Read>
int limit_upwards(const fs::path& mount, fs::path group, Read read) {
  int limit = 0;
  for (;; group = group.parent_path()) {
    limit = smaller_limit(limit, read(mount / group.relative_path()));
    if (group.relative_path().empty()) return limit;
  }
}

int affinity_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, omp_get_num_procs());
}

}  // namespace

int cgroup_cpu_quota(const fs::path& root) {
  std::ifstream in(root / "proc/self/cgroup");
  int limit = 0;
  for (std::string line; std::getline(in, line);) {  // "0::/a/b" (v2) or "4:cpu,cpuacct:/a/b" (v1)
    auto first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    fs::path group = line.substr(second + 1);
    if (controllers == ",,")
      limit = smaller_limit(limit, limit_upwards(root / "sys/fs/cgroup", group, [](const fs::path& at) {
                              return cpus_for(number(first_word(at / "cpu.max")),
                                              number(first_word(at / "cpu.max", 1)));
                            }));
    else if (controllers.find(",cpu,") != std::string::npos)
      limit = smaller_limit(limit, limit_upwards(root / "sys/fs/cgroup/cpu", group, [](const fs::path& at) {
                              return cpus_for(number(first_word(at / "cpu.cfs_quota_us")),
                                              number(first_word(at / "cpu.cfs_period_us")));
                            }));
  }
  return limit;
}

int usable_cpus() {
  return smaller_limit(affinity_cpus(), cgroup_cpu_quota("/"));
}

int launched_here() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"})  // Open MPI, MPICH, torchrun
    if (const char* set = std::getenv(name))
      if (auto ranks = number(set); ranks && *ranks > 0) return static_cast<int>(std::min(*ranks, 1024L));
  return 1;
}

int default_threads() {
  if (const char* set = std::getenv("OMP_NUM_THREADS"))
    if (auto wanted = number(set); wanted && *wanted > 0) return static_cast<int>(std::min(*wanted, 1024L));
  int ranks = launched_here();
  if (ranks == 1) return usable_cpus();
  int bound = affinity_cpus(), all = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  int sharing = std::clamp((bound * ranks + all - 1) / all, 1, ranks);  // ranks that are bound to these cores
  int quota = cgroup_cpu_quota("/");
  return std::max(1, smaller_limit(bound / sharing, quota > 0 ? std::max(1, quota / ranks) : 0));
}

}  // namespace mtrain::cpu
