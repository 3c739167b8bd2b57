#include "mtrain/cpu/cgroup.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "mtrain/cpu/leading_number.h"

namespace mtrain::cpu {

namespace fs = std::filesystem;

namespace {

/// The number at a word of a file; nothing for "max" or if there is no such file.
std::optional<int64_t> number_in(const fs::path& file, int word = 0) {
  std::ifstream in(file);
  std::string text;
  for (int i = 0; i <= word; ++i)
    if (!(in >> text)) return std::nullopt;
  return leading_number(text);
}

/// Calls visit(folder, version) for the process's group of a controller and for each group above
/// it. Lines are "0::/a/b" (version 2) or "4:cpu,cpuacct:/a/b" (version 1). In a container the
/// upper folders are not visible, and its own group is at the mount point.
template <class Visit>
void each_group(const fs::path& root, const std::string& controller, Visit&& visit) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    auto first = line.find(':'),
         second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const int version = controllers == ",," ? 2 : 1;
    if (version == 1 && controllers.find("," + controller + ",") == std::string::npos) continue;
    const fs::path mount =
        version == 2 ? root / "sys/fs/cgroup" : root / "sys/fs/cgroup" / controller;
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();;
         group = group.parent_path()) {
      visit(mount / group, version);
      if (group.empty()) break;
    }
  }
}

/// The sum of two rows of memory.stat.
uint64_t stat_of(const fs::path& file, std::string_view active, std::string_view inactive) {
  std::ifstream in(file);
  uint64_t sum = 0, value = 0;
  for (std::string key; in >> key >> value;)
    if (key == active || key == inactive) sum += value;
  return sum;
}

}  // namespace

std::optional<double> cgroup_cpus(const fs::path& root) {
  std::optional<double> least;
  each_group(root, "cpu", [&](const fs::path& at, int version) {
    auto quota = version == 2 ? number_in(at / "cpu.max") : number_in(at / "cpu.cfs_quota_us");
    auto period = version == 2 ? number_in(at / "cpu.max", 1) : number_in(at / "cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) return;
    const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
    least = std::min(least.value_or(cpus), cpus);
  });
  return least;
}

CgroupMemory cgroup_memory(const fs::path& root) {
  CgroupMemory out;
  each_group(root, "memory", [&](const fs::path& at, int version) {
    auto limit = number_in(at / (version == 2 ? "memory.max" : "memory.limit_in_bytes"));
    if (!limit || *limit < 0) return;
    auto used = static_cast<uint64_t>(
        number_in(at / (version == 2 ? "memory.current" : "memory.usage_in_bytes")).value_or(0));
    const uint64_t files =
        version == 2 ? stat_of(at / "memory.stat", "active_file", "inactive_file")
                     : stat_of(at / "memory.stat", "total_active_file", "total_inactive_file");
    used -= std::min(used, files);
    const auto most = static_cast<uint64_t>(*limit);
    out.limit = std::min(out.limit, most);
    out.free = std::min(out.free, most - std::min(most, used));
  });
  return out;
}

}  // namespace mtrain::cpu
