// What the control groups of this process allow, of version 1 and 2. A group's limit is the
// smallest of its own and those of the groups above it. `root` is "/" outside tests. Stateless.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>

#include "mtrain/base/export.h"

namespace mtrain::cpu {

/// Time of CPUs per time, such as 2.5; absent when it is not limited.
MT_API std::optional<double> cgroup_cpus(const std::filesystem::path& root);

struct CgroupMemory {
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  uint64_t limit = kNone;  // bytes
  uint64_t free = kNone;   // of a limit, what is not in use; pages of files are not, since the
                           // system takes them back
};
MT_API CgroupMemory cgroup_memory(const std::filesystem::path& root);

}  // namespace mtrain::cpu
