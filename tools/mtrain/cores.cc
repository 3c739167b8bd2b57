#include "cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

/// The usable hardware threads of each core.
std::vector<std::vector<int>> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<std::vector<int>> cores;
  std::map<std::string, size_t> known;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::ifstream siblings(
        cat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    std::string line;
    if (!std::getline(siblings, line)) line = std::to_string(cpu);
    auto [place, fresh] = known.emplace(line, cores.size());
    if (fresh) cores.emplace_back();
    cores[place->second].push_back(cpu);
  }
  return cores;
}

}  // namespace

int physical_cores() { return std::max(1, static_cast<int>(usable_cores().size())); }

void bind_to_share(int part, int parts) {
  auto cores = usable_cores();
  if (cores.empty()) return;
  const auto count = static_cast<int64_t>(cores.size());
  int64_t first = part * count / parts, last = std::max(first + 1, (part + 1) * count / parts);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int64_t core = first; core < last; ++core)
    for (int cpu : cores[static_cast<size_t>(core)]) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace mtrain
